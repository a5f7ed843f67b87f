# How every target of the project is built: one language level, many warnings, one output folder.
include(GNUInstallDirs)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

add_library(jerboa_settings INTERFACE)
target_compile_features(jerboa_settings INTERFACE cxx_std_20)
target_compile_options(jerboa_settings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
# Installed files must not name the source tree, so call sites inside the library are relative to it.
target_compile_options(jerboa_settings INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(jerboa_settings INTERFACE -Wno-restrict)  # false positives on "text" + string: GCC bug 105651
endif()
# In a unity build, names in one file are visible in others, so these warnings are false; other builds enable them.
if(CMAKE_UNITY_BUILD)
  target_compile_options(jerboa_settings INTERFACE -Wno-shadow $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  # By default, g++ spends a tenth of its time on garbage collection for 32 files at once; let it use a gigabyte.
  target_compile_options(jerboa_settings INTERFACE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>)
endif()
if(EMSCRIPTEN)
  target_compile_options(jerboa_settings INTERFACE -Wno-shorten-64-to-32)  # sizes there have 32 bits
endif()
if(JERBOA_SANITIZE)
  target_compile_options(jerboa_settings INTERFACE -fsanitize=${JERBOA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(jerboa_settings INTERFACE -fsanitize=${JERBOA_SANITIZE})
endif()
if(JERBOA_BUILD_FUZZERS)
  target_compile_options(jerboa_settings INTERFACE -fsanitize=fuzzer-no-link
    -fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/fuzz-ignorelist.txt)
endif()

# jerboa_library(NAME SOURCES a.cpp … LINKS jerboa::base … SEPARATELY b.cpp …): one library per folder of src, static
# unless BUILD_SHARED_LIBS is set. SEPARATELY names the sources that unity builds must not combine with others: their
# local names repeat, or they include themselves once per instruction set.
function(jerboa_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;PRIVATE_LINKS;SEPARATELY" ${ARGN})
  set_source_files_properties(${ARG_SEPARATELY} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(relocatable ON)
  if(EMSCRIPTEN)
    set(relocatable OFF)
  endif()
  add_library(jerboa_${name} ${ARG_SOURCES})
  add_library(jerboa::${name} ALIAS jerboa_${name})
  set_target_properties(jerboa_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ${relocatable} CXX_EXTENSIONS OFF
    DEFINE_SYMBOL "" INSTALL_RPATH "$ORIGIN")
  target_compile_features(jerboa_${name} PUBLIC cxx_std_20)
  target_include_directories(jerboa_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(jerboa_${name} PUBLIC ${ARG_LINKS} PRIVATE $<BUILD_INTERFACE:jerboa_settings> ${ARG_PRIVATE_LINKS})
  set_property(GLOBAL APPEND PROPERTY JERBOA_LIBRARIES jerboa_${name})
endfunction()

# For targets that spend their time in other libraries, and for tests, which have as much code as all libraries: -Og
# compiles in three quarters of the time of -O1, and -O0, which emits more code, is no faster.
function(jerboa_optimize_least target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
endfunction()

# Distributes the tests that a GoogleTest filter selects over several processes, each of which is one CTest test. CTest
# starts those with a high COST first, so that the last ones to run are short.
function(jerboa_share_tests name group filter processes)
  foreach(process RANGE 1 ${processes})
    math(EXPR index "${process} - 1")
    set(test ${name}/${group}.${process}_of_${processes})
    add_test(NAME ${test} COMMAND ${name}_test --gtest_filter=${filter})
    set_tests_properties(${test} PROPERTIES TIMEOUT 1800 COST 100
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${processes};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# jerboa_test(NAME SOURCES a_test.cpp … LINKS jerboa::base … SEPARATELY b_test.cpp … TOGETHER Ops PROCESSES 4): one
# GoogleTest program per folder of tests. CTest runs each test in a separate process, except for many small ones, which
# would take longer to start than to run: those of the instantiation that TOGETHER names share twelve processes, and all
# others as many as PROCESSES says. Tests of the instantiation OtherForms, which only `./dev test --full` runs, always
# have one each.
function(jerboa_test name)
  cmake_parse_arguments(ARG "" "TOGETHER;PROCESSES" "SOURCES;LINKS;SEPARATELY" ${ARGN})
  set_source_files_properties(${ARG_SEPARATELY} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_executable(${name}_test ${ARG_SOURCES})
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name}_test PRIVATE ${ARG_LINKS} jerboa_settings GTest::gtest_main)
  target_compile_definitions(${name}_test PRIVATE JERBOA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  jerboa_optimize_least(${name}_test)
  set(one_each *)
  set(shared_elsewhere -OtherForms/*)
  if(ARG_TOGETHER)
    jerboa_share_tests(${name} ${ARG_TOGETHER} ${ARG_TOGETHER}/* 12)
    set(one_each -${ARG_TOGETHER}/*)
    string(APPEND shared_elsewhere :${ARG_TOGETHER}/*)
  endif()
  if(ARG_PROCESSES)
    jerboa_share_tests(${name} Tests ${shared_elsewhere} ${ARG_PROCESSES})
    set(one_each OtherForms/*)
  endif()
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}/ TEST_FILTER ${one_each}
    PROPERTIES TIMEOUT 1800 DISCOVERY_TIMEOUT 60)
endfunction()
