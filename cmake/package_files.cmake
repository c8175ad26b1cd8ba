# Run by cpack when all is installed in a folder and before it is packed: the last touches that the
# two packages need, each its own.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})

# A package that needs no other: the libraries it links, but for those of the C and C++ compiler,
# which every system has, lie beside ours with their licences.
function(bundle_libraries)
  file(GET_RUNTIME_DEPENDENCIES
    EXECUTABLES ${root}/bin/headroom
    RESOLVED_DEPENDENCIES_VAR libraries
    UNRESOLVED_DEPENDENCIES_VAR missing
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|gcc_s|stdc[+][+])[.]so")
  if(missing)
    message(FATAL_ERROR "headroom links libraries that are not here: ${missing}")
  endif()
  foreach(library IN LISTS libraries)
    get_filename_component(name ${library} NAME)
    file(REAL_PATH ${library} file)
    file(COPY_FILE ${file} ${root}/${CPACK_HEADROOM_LIBDIR}/${name})
    copy_licence(${file})
  endforeach()
endfunction()

function(copy_licence file)
  string(REGEX REPLACE "^/usr/" "/" short ${file})  # dpkg may know it by either name
  execute_process(COMMAND dpkg-query --search ${file} ${short}
    OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE ignored)
  string(REGEX MATCH "^[^:,]+" package "${owner}")
  if(NOT package OR NOT EXISTS /usr/share/doc/${package}/copyright)
    message(WARNING "the licence of ${file} was not found; add it before you pass the archive on")
    return()
  endif()
  file(COPY_FILE /usr/share/doc/${package}/copyright
    ${root}/share/doc/headroom/third-party/${package})
endfunction()

# Debian has the libraries, and its own places for the licence and the changes.
function(follow_debian)
  set(documents ${root}/usr/share/doc/headroom)
  file(RPATH_REMOVE FILE ${root}/usr/bin/headroom)
  file(REMOVE ${documents}/LICENSE)
  file(WRITE ${documents}/copyright
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: headroom

Files: *
Copyright: 2026 headroom developers
License: Apache-2.0
 On Debian systems the text of the licence is in /usr/share/common-licenses/Apache-2.0.
")
endfunction()

if(CPACK_GENERATOR STREQUAL "DEB")
  follow_debian()
else()
  file(MAKE_DIRECTORY ${root}/share/doc/headroom/third-party)
  bundle_libraries()
endif()
