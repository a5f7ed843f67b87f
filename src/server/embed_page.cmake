# Writes the files of the chat page as C++: cmake -DFILES=a;b -DOUTPUT=page_files.cpp -P embed_page.cmake
set(types_html "text/html; charset=utf-8")
set(types_css "text/css; charset=utf-8")
set(types_js "text/javascript; charset=utf-8")

set(rows)
foreach(file IN LISTS FILES)
  file(READ ${file} content HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" content "${content}")
  # A literal per line keeps them short.
  string(REGEX REPLACE "(\\\\x0a)" "\\1\"\n     \"" content "${content}")
  get_filename_component(name ${file} NAME)
  get_filename_component(extension ${file} LAST_EXT)
  string(SUBSTRING ${extension} 1 -1 extension)
  set(path /${name})
  if(name STREQUAL index.html)
    set(path /)
  endif()
  string(APPEND rows "    {\"${path}\", \"${types_${extension}}\",\n     \"${content}\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Generated from src/server/page and web/page/shared.
#include \"server/page_files.h\"

namespace jerboa::server {
namespace {

constexpr PageFile files[] = {
${rows}};

}  // namespace

std::span<const PageFile> page_files() { return files; }

}  // namespace jerboa::server
")
