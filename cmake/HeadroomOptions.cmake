# What a user may choose, and the flags that follow. No global flags: everything hangs on the
# interface target headroom_options, which our targets link privately.

option(HEADROOM_BUILD_CLI "Build the headroom command" ${PROJECT_IS_TOP_LEVEL})
option(HEADROOM_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(HEADROOM_BUILD_BINDINGS "Build the C ABI and the PyTorch plug-in" ${PROJECT_IS_TOP_LEVEL})
option(HEADROOM_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(HEADROOM_WERROR "Treat warnings as errors" OFF)
option(HEADROOM_ONE_EXAMPLE "Compile the examples as one file, for clang-tidy" OFF)
option(HEADROOM_FUZZERS "Build the fuzzers, with clang" OFF)
option(HEADROOM_VALIDATE "Run internal checks after every operation" OFF)
set(HEADROOM_CUDA AUTO CACHE STRING "The cuda backend: AUTO (where cuda.h is found), ON or OFF")
set_property(CACHE HEADROOM_CUDA PROPERTY STRINGS AUTO ON OFF)
set(HEADROOM_TORCH AUTO CACHE STRING
  "PyTorch's allocator in benchmarks: AUTO (where torch with CUDA is found), ON or OFF")
set_property(CACHE HEADROOM_TORCH PROPERTY STRINGS AUTO ON OFF)
set(HEADROOM_SANITIZE "" CACHE STRING "Sanitizers: 'address,undefined' or 'thread'")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()

# Most of what a small file costs is the headers it reads, so files are compiled eight at a time.
option(HEADROOM_BATCH "Compile files in batches: far faster from nothing, slower after one edit"
  ${PROJECT_IS_TOP_LEVEL})
if(HEADROOM_BATCH)
  set(CMAKE_UNITY_BUILD ON)
endif()

add_library(headroom_options INTERFACE)
target_compile_options(headroom_options INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  # Frames are walked by their pointers when a stack is recorded.
  -fno-omit-frame-pointer
  # g++ 12 sees overlaps in std::string that are not there (its bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # In a batch, a type of one of its files looks like a header's.
  $<$<AND:$<BOOL:${HEADROOM_BATCH}>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>
  $<$<BOOL:${HEADROOM_WERROR}>:-Werror>)
if(HEADROOM_VALIDATE)
  target_compile_definitions(headroom_options INTERFACE HEADROOM_VALIDATE=1)
endif()
if(HEADROOM_SANITIZE)
  # Without the checks that ASan makes as well, which double the time it takes to compile.
  target_compile_options(headroom_options INTERFACE
    -fsanitize=${HEADROOM_SANITIZE} -fno-sanitize=null,object-size,vptr -fno-sanitize-recover=all)
  target_link_options(headroom_options INTERFACE -fsanitize=${HEADROOM_SANITIZE})
endif()

if(HEADROOM_FUZZERS)
  target_compile_options(headroom_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# The cuda backend needs cuda.h and nothing else: the driver is opened at run time. Sets
# HEADROOM_CUDA_INCLUDE_DIR, empty when there is to be no backend.
function(headroom_find_cuda)
  set(HEADROOM_CUDA_INCLUDE_DIR "" PARENT_SCOPE)
  string(TOUPPER "${HEADROOM_CUDA}" wanted)
  if(NOT wanted STREQUAL "AUTO" AND NOT HEADROOM_CUDA)
    return()
  endif()
  file(GLOB toolkits LIST_DIRECTORIES true /usr/local/cuda-*)
  list(SORT toolkits COMPARE NATURAL ORDER DESCENDING)
  find_path(HEADROOM_CUDA_H_DIR cuda.h
    HINTS ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH}
    PATHS /usr/local/cuda /opt/cuda ${toolkits}
    PATH_SUFFIXES include targets/x86_64-linux/include targets/sbsa-linux/include
    DOC "Where cuda.h is")
  mark_as_advanced(HEADROOM_CUDA_H_DIR)
  set(version 0)
  if(HEADROOM_CUDA_H_DIR)
    file(STRINGS ${HEADROOM_CUDA_H_DIR}/cuda.h line REGEX "^#define CUDA_VERSION [0-9]+")
    string(REGEX REPLACE "[^0-9]" "" version "0${line}")
  endif()
  if(version LESS 12000)
    set(why "cuda.h of CUDA 12 or newer was not found")
    if(NOT wanted STREQUAL "AUTO")
      message(FATAL_ERROR "HEADROOM_CUDA is ${HEADROOM_CUDA}, but ${why}: set CUDAToolkit_ROOT")
    endif()
    message(STATUS "No cuda backend: ${why}")
    return()
  endif()
  set(HEADROOM_CUDA_INCLUDE_DIR ${HEADROOM_CUDA_H_DIR} PARENT_SCOPE)
endfunction()
headroom_find_cuda()
