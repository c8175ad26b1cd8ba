# A Debian package and an archive that runs wherever it is unpacked, both by cpack from what
# `cmake --install` installs; tools/package.sh makes them.

# Builds what is installed and nothing else, which `all` does not.
add_custom_target(headroom_installed)
foreach(tier embed analyse run)
  get_property(modules GLOBAL PROPERTY HEADROOM_MODULES_${tier})
  list(TRANSFORM modules PREPEND headroom_)
  add_dependencies(headroom_installed ${modules})
endforeach()
foreach(target headroom_cli headroom_c headroom_pytorch)
  if(TARGET ${target})
    add_dependencies(headroom_installed ${target})
  endif()
endforeach()

# A wheel for pip: the Python package with the command and the plug-in, in build/wheel.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND TARGET headroom_pytorch AND TARGET headroom_cli)
  add_custom_target(wheel
    COMMAND ${CMAKE_COMMAND}
      -D BUILD_DIR=${PROJECT_BINARY_DIR}
      -D OUTPUT=${PROJECT_BINARY_DIR}/wheel
      -D PYTHON=${Python3_EXECUTABLE}
      -D VERSION=${PROJECT_VERSION}
      -P ${PROJECT_SOURCE_DIR}/bindings/python/make_wheel.cmake
    DEPENDS headroom_installed
    USES_TERMINAL VERBATIM)
endif()

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGE_FILE_NAME headroom-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_VENDOR "headroom developers")
set(CPACK_PACKAGE_CONTACT "headroom developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "explains and lowers the GPU memory of deep learning")
set(CPACK_PACKAGE_DESCRIPTION
"The command headroom reads what PyTorch recorded of its GPU memory, says why
a job ran out of it, and proves a setting that helps by replaying the
recording. It plans the memory of a training step, to the byte, before it runs.
.
Also here: the C++ libraries for find_package(headroom), the allocator with a C
interface, and the plug-in that puts it in the place of PyTorch's own.")
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_HEADROOM_LIBDIR ${CMAKE_INSTALL_LIBDIR})  # for the script
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_files.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
file(CONFIGURE OUTPUT debian/triggers CONTENT "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/debian/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Only for programs that link more than headroom::memory.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
  "cmake, g++, libdw-dev, libfmt-dev, libopenblas-dev, libzstd-dev")

include(CPack)
