# The shared library must export the C functions and nothing else: C++ symbols would clash with those of a program that
# also links the C++ libraries.
execute_process(COMMAND ${NM} -D --defined-only --format=posix ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
foreach(symbol IN LISTS symbols)
  if(NOT symbol MATCHES "^jerboa_")
    message(FATAL_ERROR "${LIBRARY} exports ${symbol}")
  endif()
endforeach()
list(LENGTH symbols count)
if(count LESS 8)
  message(FATAL_ERROR "${LIBRARY} exports only ${count} functions")
endif()
