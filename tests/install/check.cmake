# Installs the build tree BUILD, of the sources SOURCE, under WORK; then configures, builds and runs the project outside/
# against that install alone.
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
foreach(file IN LISTS package_files)
  file(READ ${file} content)
  string(FIND "${content}" ${SOURCE} position)
  if(NOT position EQUAL -1)
    message(FATAL_ERROR "${file} names the source tree, which a user need not have")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/outside -B ${WORK}/build -G Ninja -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${WORK}/build)
set(WORK_IN ${WORK}/build)
run(${WORK}/build/outside)
if(NOT output MATCHES "jerboa works outside its tree")
  message(FATAL_ERROR "the outside program printed: ${output}")
endif()
run(${prefix}/bin/jerboa --help)
