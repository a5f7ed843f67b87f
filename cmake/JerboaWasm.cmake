# The compiler library for WASM. Of its dependencies, fmt and nlohmann-json are header-only, and PCRE2 and utf8proc are
# compiled from their sources, which ./dev unpacks.
enable_language(C)
set(JERBOA_WASM_PACKAGES ${PROJECT_SOURCE_DIR}/build/wasm-packages CACHE PATH "The sources of pcre2 and utf8proc")
if(NOT EXISTS ${JERBOA_WASM_PACKAGES}/utf8proc OR NOT EXISTS ${JERBOA_WASM_PACKAGES}/pcre2)
  message(FATAL_ERROR "the sources of PCRE2 and utf8proc are missing: run ./dev build wasm, or set JERBOA_WASM_PACKAGES")
endif()

# Native WASM exceptions: calls that may throw cost nothing, and need no JavaScript.
add_compile_options(-fwasm-exceptions $<$<COMPILE_LANGUAGE:CXX>:-fno-rtti>)
add_link_options(-fwasm-exceptions)

# Links to single libraries, because all of /usr/include would hide emscripten's C library.
set(headers ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${headers})
foreach(library fmt nlohmann)
  file(CREATE_LINK /usr/include/${library} ${headers}/${library} SYMBOLIC)
endforeach()
add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
# Without locales, which would pull in those of the standard library, and without types that are never formatted.
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY FMT_STATIC_THOUSANDS_SEPARATOR=',' FMT_USE_INT128=0
  FMT_USE_LONG_DOUBLE=0 FMT_REDUCE_INT_INSTANTIATIONS=1)
add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
add_library(Threads::Threads INTERFACE IMPORTED GLOBAL)
foreach(library fmt::fmt nlohmann_json::nlohmann_json)
  target_include_directories(${library} SYSTEM INTERFACE ${headers})
endforeach()

set(pcre2 ${JERBOA_WASM_PACKAGES}/pcre2/src)
set(generated ${PROJECT_BINARY_DIR}/pcre2)
configure_file(${pcre2}/config.h.generic ${generated}/config.h COPYONLY)
configure_file(${pcre2}/pcre2.h.generic ${generated}/pcre2.h COPYONLY)
configure_file(${pcre2}/pcre2_chartables.c.dist ${generated}/pcre2_chartables.c COPYONLY)
set(parts auto_possess compile config context convert dfa_match error extuni find_bracket jit_compile maketables
  match match_data newline ord2utf pattern_info script_run serialize string_utils study substitute substring tables ucd
  valid_utf xclass)
list(TRANSFORM parts PREPEND ${pcre2}/pcre2_)
list(TRANSFORM parts APPEND .c)
add_library(pcre2 STATIC ${parts} ${generated}/pcre2_chartables.c)
target_compile_definitions(pcre2 PRIVATE HAVE_CONFIG_H SUPPORT_UNICODE PUBLIC PCRE2_CODE_UNIT_WIDTH=8 PCRE2_STATIC)
target_include_directories(pcre2 SYSTEM PUBLIC ${generated} PRIVATE ${pcre2})

# A copy, next to which its packed tables are written.
find_program(NODE node REQUIRED)
set(utf8proc ${PROJECT_BINARY_DIR}/utf8proc)
configure_file(${JERBOA_WASM_PACKAGES}/utf8proc/utf8proc.c ${utf8proc}/utf8proc.c COPYONLY)
configure_file(${JERBOA_WASM_PACKAGES}/utf8proc/utf8proc.h ${utf8proc}/utf8proc.h COPYONLY)
set(pack ${PROJECT_SOURCE_DIR}/cmake/wasm/pack_utf8proc.mjs)
add_custom_command(OUTPUT ${utf8proc}/utf8proc_data.c
  COMMAND ${NODE} ${pack} ${JERBOA_WASM_PACKAGES}/utf8proc ${utf8proc}/utf8proc_data.c
  DEPENDS ${pack} ${JERBOA_WASM_PACKAGES}/utf8proc/utf8proc_data.c VERBATIM)
add_library(utf8proc STATIC ${utf8proc}/utf8proc.c)
set_source_files_properties(${utf8proc}/utf8proc.c PROPERTIES OBJECT_DEPENDS ${utf8proc}/utf8proc_data.c)
target_include_directories(utf8proc SYSTEM PUBLIC ${utf8proc})
target_compile_definitions(utf8proc PUBLIC UTF8PROC_STATIC)
set_target_properties(pcre2 utf8proc PROPERTIES UNITY_BUILD OFF COMPILE_WARNING_AS_ERROR OFF)
target_compile_options(pcre2 PRIVATE -w)
target_compile_options(utf8proc PRIVATE -w)
add_library(PkgConfig::PCRE2 ALIAS pcre2)
add_library(PkgConfig::UTF8PROC ALIAS utf8proc)

# jerboa_wasm_module(TARGET HEADER...): links the target as jerboa.wasm, which exports every function that the headers
# declare. web/src/compiler/module.ts supplies the few functions that it imports, so emscripten's JavaScript is not needed.
function(jerboa_wasm_module target)
  set(declarations)
  foreach(header IN LISTS ARGN)
    file(STRINGS ${header} found REGEX "^[a-z].* \\*?\\*?jerboa_[a-z0-9_]+\\(|^[a-z].*[ *]jerboa_[a-z0-9_]+\\(")
    list(APPEND declarations ${found})
  endforeach()
  set(functions _malloc _free)
  foreach(declaration IN LISTS declarations)
    string(REGEX REPLACE "^.*[ *](jerboa_[a-z0-9_]+)\\(.*$" "_\\1" name "${declaration}")
    list(APPEND functions ${name})
  endforeach()
  list(JOIN functions "," functions)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME jerboa SUFFIX .wasm LINK_DEPENDS "${ARGN}")
  # Functions of a few instructions are inlined, which engines do not do themselves: this halves the time of a
  # compilation, and a second round of the optimizer removes the additional code.
  set(passes --always-inline-max-function-size=4,--merge-similar-functions,-Oz)
  target_link_options(${target} PRIVATE -Oz --no-entry -sSTANDALONE_WASM -sALLOW_MEMORY_GROWTH -sMAXIMUM_MEMORY=4GB
    -sTOTAL_STACK=1MB -sBINARYEN_EXTRA_PASSES=${passes} "-sEXPORTED_FUNCTIONS=${functions}")
  set(order ${PROJECT_SOURCE_DIR}/cmake/wasm/order_functions.mjs)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${order})
  # Then copies it to where the package expects it.
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${NODE} ${order} $<TARGET_FILE:${target}>
    COMMAND ${CMAKE_COMMAND} -E copy_if_different $<TARGET_FILE:${target}> ${PROJECT_SOURCE_DIR}/web/dist/src/jerboa.wasm)
endfunction()
