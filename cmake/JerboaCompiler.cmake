# jerboa::compiler, everything that turns bytes into bytes as one library: configurations, graphs and weights into
# programs, texts into tokens, schemas into grammars. It needs no device, no file system and no threads, so that it can
# run in a browser: ./dev build wasm compiles it with emscripten.
set(compiler_folders base io ir ops transform lower wgsl compile models steps text generate serving)
set(objects)
set(links)
foreach(folder IN LISTS compiler_folders)
  list(APPEND objects $<TARGET_OBJECTS:jerboa_${folder}>)
  get_target_property(linked jerboa_${folder} LINK_LIBRARIES)
  list(APPEND links ${linked})
endforeach()
list(FILTER links EXCLUDE REGEX "^jerboa::|jerboa_settings")
list(REMOVE_DUPLICATES links)
add_library(jerboa_compiler STATIC EXCLUDE_FROM_ALL ${objects})
add_library(jerboa::compiler ALIAS jerboa_compiler)
set_target_properties(jerboa_compiler PROPERTIES LINKER_LANGUAGE CXX)
target_compile_features(jerboa_compiler PUBLIC cxx_std_20)
target_include_directories(jerboa_compiler PUBLIC ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(jerboa_compiler PUBLIC ${links})
