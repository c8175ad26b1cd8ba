# Installs to a fresh prefix, moves it (a package must not remember where it was made), and lets the
# project in consumer/ use it. Run by ctest with BUILD_DIR, WORK_DIR, GENERATOR and COMPILER.
cmake_minimum_required(VERSION 3.25)
set(prefix "${WORK_DIR}/moved here")
file(REMOVE_RECURSE "${WORK_DIR}/staging" "${prefix}" "${WORK_DIR}/consumer")

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE output)
  set(output "${output}" PARENT_SCOPE)
endfunction()

# configure(NAME [OPTION...]): the consumer in its own build folder; sets `status` and `output`.
function(configure name)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${WORK_DIR}/consumer/${name}
      -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_PREFIX_PATH=${prefix} ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  set(status "${status}" PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/staging)
file(RENAME "${WORK_DIR}/staging" "${prefix}")
file(GLOB_RECURSE private "${prefix}/include/*/internal/*")
if(private)
  message(FATAL_ERROR "private headers are installed: ${private}")
endif()

run("${prefix}/bin/headroom" --version)
file(GLOB_RECURSE installed RELATIVE "${prefix}" "${prefix}/*")
foreach(file
    lib[^/]*/headroom/libheadroom_torch.so lib[^/]*/headroom/headroom_torch.py
    lib[^/]*/headroom/headroom/torch/__init__.py
    lib[^/]*/pkgconfig/headroom.pc include/headroom/c/headroom.h
    share/headroom/samples/leak_loss.pickle.zst share/doc/headroom/docs/guide/install.md)
  if(NOT "${installed}" MATCHES "(^|;)${file}(;|$)")
    message(FATAL_ERROR "${file} is not installed")
  endif()
endforeach()

foreach(component memory "")
  set(name "with-${component}")
  configure(${name} -D COMPONENT=${component})
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "the consumer of '${component}' does not configure: ${output}")
  endif()
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/consumer/${name})
  run(${WORK_DIR}/consumer/${name}/consumer)
  if(NOT output STREQUAL "meta:1 20MiB\n")
    message(FATAL_ERROR "the consumer of '${component}' printed: ${output}")
  endif()
endforeach()

configure(unknown -D COMPONENT=nosuch)
if(status EQUAL 0 OR NOT output MATCHES "has no component 'nosuch'; it has base, device, memory")
  message(FATAL_ERROR "an unknown component must be named, and the known ones listed: ${output}")
endif()
