# cmake --install, and find_package(headroom COMPONENTS memory) for whoever installed it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(HEADROOM_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/headroom)

# headroom::headroom is every module there is.
add_library(headroom_headroom INTERFACE)
add_library(headroom::headroom ALIAS headroom_headroom)

# A tier is one export set, so that a user of the allocator needs none of the tools' libraries.
foreach(tier embed analyse run)
  get_property(modules GLOBAL PROPERTY HEADROOM_MODULES_${tier})
  get_property(packages GLOBAL PROPERTY HEADROOM_PACKAGES_${tier})
  list(REMOVE_DUPLICATES packages)
  set(HEADROOM_MODULES_${tier} "${modules}")
  set(HEADROOM_PACKAGES_${tier} "${packages}")
  if(modules)
    list(TRANSFORM modules PREPEND headroom_)
    target_link_libraries(headroom_headroom INTERFACE ${modules})
    install(TARGETS ${modules} EXPORT headroom-${tier}
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
      FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(EXPORT headroom-${tier} NAMESPACE headroom:: DESTINATION ${HEADROOM_CMAKE_DIR})
  endif()
endforeach()
if(HEADROOM_BUILD_CLI)
  install(TARGETS headroom_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/samples DESTINATION ${CMAKE_INSTALL_DATADIR}/headroom)
endif()
# As in the tree, so that the links between them hold.
install(FILES
  ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md
  ${PROJECT_SOURCE_DIR}/LICENSE
  ${PROJECT_SOURCE_DIR}/README.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/headroom/README.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/headroom)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples
  DESTINATION ${CMAKE_INSTALL_DOCDIR}
  PATTERN CMakeLists.txt EXCLUDE)

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/headroomConfig.cmake.in
  ${PROJECT_BINARY_DIR}/headroomConfig.cmake
  INSTALL_DESTINATION ${HEADROOM_CMAKE_DIR})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/headroomConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/headroomConfig.cmake
  ${PROJECT_BINARY_DIR}/headroomConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOpenBLAS.cmake
  ${PROJECT_SOURCE_DIR}/cmake/Findlibdw.cmake
  ${PROJECT_SOURCE_DIR}/cmake/Findzstd.cmake
  DESTINATION ${HEADROOM_CMAKE_DIR})
