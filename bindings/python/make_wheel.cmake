# Installs the build to a folder of its own, adds the libraries that it links, and packs the wheel.
# Run with BUILD_DIR, OUTPUT, PYTHON and VERSION; the target `wheel` does.
cmake_minimum_required(VERSION 3.25)
set(source ${CMAKE_CURRENT_LIST_DIR}/../..)
include(${source}/cmake/bundle_libraries.cmake)
set(staging ${OUTPUT}/staging)
file(REMOVE_RECURSE ${staging})
execute_process(
  COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${staging} --strip
  COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
file(GLOB plugin ${staging}/lib*/headroom/libheadroom_torch.so)
file(MAKE_DIRECTORY ${staging}/bundled)
headroom_bundle_libraries(
  PROGRAMS ${staging}/bin/headroom ${plugin}
  LIBRARIES ${staging}/bundled
  LICENCES ${staging}/third-party)
execute_process(
  COMMAND ${PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/make_wheel.py
    --staging ${staging} --version ${VERSION} --output ${OUTPUT}
  COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${staging})
