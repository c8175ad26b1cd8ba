# cmake --install, and find_package(headroom COMPONENTS memory) for whoever installed it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(HEADROOM_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/headroom)

# A tier is one export set, so that a user of the allocator needs none of the tools' libraries.
foreach(tier embed analyse run)
  get_property(targets GLOBAL PROPERTY HEADROOM_TARGETS_${tier})
  if(targets)
    install(TARGETS ${targets} EXPORT headroom-${tier}
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
      FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(EXPORT headroom-${tier} NAMESPACE headroom:: DESTINATION ${HEADROOM_CMAKE_DIR})
  endif()
endforeach()
if(HEADROOM_BUILD_CLI)
  install(TARGETS headroom_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/headroomConfig.cmake.in
  ${PROJECT_BINARY_DIR}/headroomConfig.cmake
  INSTALL_DESTINATION ${HEADROOM_CMAKE_DIR})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/headroomConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/headroomConfig.cmake
  ${PROJECT_BINARY_DIR}/headroomConfigVersion.cmake
  DESTINATION ${HEADROOM_CMAKE_DIR})
