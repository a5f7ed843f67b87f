# jerboa::jerboa, which links every library of src, and find_package(jerboa), which provides it and each library separately.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY JERBOA_LIBRARIES)
add_library(jerboa_all INTERFACE)
add_library(jerboa::jerboa ALIAS jerboa_all)
set_target_properties(jerboa_all PROPERTIES EXPORT_NAME jerboa)
target_link_libraries(jerboa_all INTERFACE ${libraries})
if(NOT JERBOA_INSTALL)
  return()
endif()

# A consumer also needs the packages of the targets that the libraries link, PACKAGE::TARGET.
function(jerboa_find_dependency_calls result)
  set(calls)
  foreach(library IN LISTS libraries)
    get_target_property(linked ${library} LINK_LIBRARIES)
    foreach(target IN LISTS linked)
      if(target MATCHES "^PkgConfig::(.+)$")
        list(APPEND calls "find_dependency(PkgConfig)"
          "pkg_check_modules(${CMAKE_MATCH_1} REQUIRED QUIET IMPORTED_TARGET ${${CMAKE_MATCH_1}_MODULE_NAME})")
      elseif(target MATCHES "^([A-Za-z0-9_]+)::" AND NOT CMAKE_MATCH_1 STREQUAL jerboa)
        list(APPEND calls "find_dependency(${CMAKE_MATCH_1})")
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES calls)
  list(JOIN calls "\n" calls)
  set(${result} "${calls}" PARENT_SCOPE)
endfunction()
jerboa_find_dependency_calls(JERBOA_FIND_DEPENDENCIES)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/jerboa)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/jerboaConfig.cmake.in ${PROJECT_BINARY_DIR}/jerboaConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/jerboaConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS ${libraries} jerboa_all EXPORT jerboaTargets)
install(EXPORT jerboaTargets NAMESPACE jerboa:: DESTINATION ${package_folder})
install(FILES ${PROJECT_BINARY_DIR}/jerboaConfig.cmake ${PROJECT_BINARY_DIR}/jerboaConfigVersion.cmake
  DESTINATION ${package_folder})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/jerboa DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
