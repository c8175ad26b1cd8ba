# Finds an installed PyTorch with CUDA, for benchmarks only. Not by find_package(Torch), which wants
# nvcc and turns on CUDA as a language: its C++ libraries and headers are all that is needed.
#
# Sets HEADROOM_TORCH_TARGET to a library to link, empty when there is none.

# Asks python3 once, and remembers the answer: importing torch takes seconds.
function(headroom_ask_torch)
  if(DEFINED CACHE{HEADROOM_TORCH_ANSWER})
    return()
  endif()
  find_program(HEADROOM_PYTHON NAMES python3 python DOC "The Python that may have torch")
  mark_as_advanced(HEADROOM_PYTHON)
  if(NOT HEADROOM_PYTHON)
    return()
  endif()
  set(question "
import os, torch
print(';'.join([os.path.dirname(torch.__file__), torch.__version__, torch.version.cuda or '',
                str(int(torch.compiled_with_cxx11_abi()))]))")
  execute_process(COMMAND ${HEADROOM_PYTHON} -c "${question}"
    OUTPUT_VARIABLE answer ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE status TIMEOUT 120)
  if(status EQUAL 0 AND answer)
    set(HEADROOM_TORCH_ANSWER "${answer}" CACHE INTERNAL "Folder, version, CUDA and ABI of torch")
  endif()
endfunction()

# The first that is needed and not there goes to `missing`.
function(headroom_find_torch_parts folder missing)
  # pip puts the CUDA runtime beside torch, under nvidia/.
  get_filename_component(packages ${folder} DIRECTORY)
  file(GLOB beside LIST_DIRECTORIES true ${packages}/nvidia/cu* ${packages}/nvidia/cuda_runtime)
  find_path(HEADROOM_TORCH_CUDART_DIR cuda_runtime_api.h
    HINTS ${HEADROOM_CUDA_INCLUDE_DIR} ${beside} PATH_SUFFIXES include
    DOC "Where cuda_runtime_api.h is")
  mark_as_advanced(HEADROOM_TORCH_CUDART_DIR)
  set(${missing} "" PARENT_SCOPE)
  foreach(part lib/libc10.so lib/libc10_cuda.so include/c10/cuda/CUDACachingAllocator.h)
    if(NOT EXISTS ${folder}/${part})
      set(${missing} "${folder} has no ${part}: is it a build with CUDA?" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  if(NOT HEADROOM_TORCH_CUDART_DIR)
    set(${missing} "cuda_runtime_api.h was not found" PARENT_SCOPE)
  endif()
endfunction()

function(headroom_find_torch)
  set(HEADROOM_TORCH_TARGET "" PARENT_SCOPE)
  string(TOUPPER "${HEADROOM_TORCH}" wanted)
  # Its libraries are not built for a sanitizer.
  if((NOT wanted STREQUAL "AUTO" AND NOT HEADROOM_TORCH) OR HEADROOM_SANITIZE)
    return()
  endif()
  headroom_ask_torch()
  set(answer "$CACHE{HEADROOM_TORCH_ANSWER}")
  if(NOT answer)
    set(missing "python3 cannot import torch")
  else()
    list(GET answer 0 folder)
    list(GET answer 1 version)
    list(GET answer 3 cxx11_abi)
    headroom_find_torch_parts(${folder} missing)
  endif()
  if(missing)
    if(NOT wanted STREQUAL "AUTO")
      message(FATAL_ERROR "HEADROOM_TORCH is ${HEADROOM_TORCH}, but ${missing}")
    endif()
    return()
  endif()
  add_library(headroom_torch INTERFACE IMPORTED)
  target_include_directories(headroom_torch SYSTEM INTERFACE
    ${folder}/include ${HEADROOM_TORCH_CUDART_DIR})
  target_compile_definitions(headroom_torch INTERFACE
    _GLIBCXX_USE_CXX11_ABI=${cxx11_abi} HEADROOM_TORCH_VERSION="${version}")
  target_link_libraries(headroom_torch INTERFACE
    ${folder}/lib/libc10_cuda.so ${folder}/lib/libc10.so)
  message(STATUS "PyTorch ${version} for benchmarks: ${folder}")
  set(HEADROOM_TORCH_TARGET headroom_torch PARENT_SCOPE)
endfunction()
headroom_find_torch()
