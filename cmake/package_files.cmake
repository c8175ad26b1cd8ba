# Run by cpack when all is installed in a folder and before it is packed: the last touches that the
# two packages need, each its own.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
file(GLOB_RECURSE plugins ${root}/libheadroom_torch.so)

include(${CMAKE_CURRENT_LIST_DIR}/bundle_libraries.cmake)

# Debian has the libraries, and its own places for the licence and the changes.
function(follow_debian)
  set(documents ${root}/usr/share/doc/headroom)
  file(RPATH_REMOVE FILE ${root}/usr/bin/headroom)
  foreach(plugin IN LISTS plugins)
    file(RPATH_REMOVE FILE ${plugin})
  endforeach()
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
  headroom_bundle_libraries(
    PROGRAMS ${root}/bin/headroom
    LIBRARIES ${root}/${CPACK_HEADROOM_LIBDIR}
    LICENCES ${root}/share/doc/headroom/third-party)
endif()
