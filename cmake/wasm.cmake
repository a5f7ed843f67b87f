# Compiles for the browser with Debian's emscripten.
find_program(EMXX em++ REQUIRED)
file(REAL_PATH ${EMXX} emscripten)  # the wrapper in emscripten's folder
cmake_path(GET emscripten PARENT_PATH emscripten)
include(${emscripten}/cmake/Modules/Platform/Emscripten.cmake)
