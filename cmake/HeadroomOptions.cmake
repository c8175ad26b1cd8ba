# What a user may choose, and the flags that follow. No global flags: everything hangs on the
# interface target headroom_options, which our targets link privately.

option(HEADROOM_BUILD_CLI "Build the headroom command" ${PROJECT_IS_TOP_LEVEL})
option(HEADROOM_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(HEADROOM_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(HEADROOM_WERROR "Treat warnings as errors" OFF)
option(HEADROOM_VALIDATE "Run internal checks after every operation" OFF)
set(HEADROOM_SANITIZE "" CACHE STRING "Sanitizers: 'address,undefined' or 'thread'")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()

add_library(headroom_options INTERFACE)
target_compile_options(headroom_options INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  # Frames are walked by their pointers when a stack is recorded.
  -fno-omit-frame-pointer
  # g++ 12 sees overlaps in std::string that are not there (its bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${HEADROOM_WERROR}>:-Werror>)
if(HEADROOM_VALIDATE)
  target_compile_definitions(headroom_options INTERFACE HEADROOM_VALIDATE=1)
endif()
if(HEADROOM_SANITIZE)
  target_compile_options(headroom_options INTERFACE
    -fsanitize=${HEADROOM_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(headroom_options INTERFACE -fsanitize=${HEADROOM_SANITIZE})
endif()
