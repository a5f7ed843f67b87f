# Installs the build tree BUILD, of the sources SOURCE, under WORK; then configures, builds and runs the project outside/
# against that install alone. TYPE is the type of the build: with debug information, libraries do name their sources.
set(prefix ${WORK}/prefix)
file(REMOVE_RECURSE ${WORK})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY WORKING_DIRECTORY ${WORK_IN} OUTPUT_VARIABLE output)
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(WORK_IN ${BUILD})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

file(GLOB_RECURSE package_files ${prefix}/*.cmake)
if(NOT package_files)
  message(FATAL_ERROR "no package files were installed under ${prefix}")
endif()
execute_process(COMMAND grep -rlF ${SOURCE}/ ${prefix} OUTPUT_VARIABLE naming_the_sources)
if(naming_the_sources AND NOT TYPE STREQUAL Debug)
  message(FATAL_ERROR "these installed files name the source tree, which a user need not have:\n${naming_the_sources}")
endif()

run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/outside -B ${WORK}/build -G Ninja -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${WORK}/build)
set(WORK_IN ${WORK}/build)
run(${WORK}/build/outside)
if(NOT output MATCHES "jerboa works outside its tree")
  message(FATAL_ERROR "the outside program printed: ${output}")
endif()
run(${prefix}/bin/jerboa --help)
