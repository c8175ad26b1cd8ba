# For scripts that make something which needs no other package.

# headroom_bundle_libraries(LIBRARIES FOLDER LICENCES FOLDER PROGRAMS FILE...): puts what the
# programs link beside them, with the licences, but for the libraries of the C and C++ compiler,
# which every system has.
function(headroom_bundle_libraries)
  cmake_parse_arguments(PARSE_ARGV 0 B "" "LIBRARIES;LICENCES" "PROGRAMS")
  file(MAKE_DIRECTORY ${B_LICENCES})
  file(GET_RUNTIME_DEPENDENCIES
    EXECUTABLES ${B_PROGRAMS}
    RESOLVED_DEPENDENCIES_VAR libraries
    UNRESOLVED_DEPENDENCIES_VAR missing
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|gcc_s|stdc[+][+])[.]so")
  if(missing)
    message(FATAL_ERROR "headroom links libraries that are not here: ${missing}")
  endif()
  foreach(library IN LISTS libraries)
    get_filename_component(name ${library} NAME)
    file(REAL_PATH ${library} file)
    file(COPY_FILE ${file} ${B_LIBRARIES}/${name})
    headroom_copy_licence(${file} ${B_LICENCES})
  endforeach()
endfunction()

function(headroom_copy_licence file licences)
  string(REGEX REPLACE "^/usr/" "/" short ${file})  # dpkg may know it by either name
  execute_process(COMMAND dpkg-query --search ${file} ${short}
    OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE ignored)
  string(REGEX MATCH "^[^:,]+" package "${owner}")
  if(NOT package OR NOT EXISTS /usr/share/doc/${package}/copyright)
    message(WARNING "the licence of ${file} was not found; add it before you pass this on")
    return()
  endif()
  file(COPY_FILE /usr/share/doc/${package}/copyright ${licences}/${package})
endfunction()
