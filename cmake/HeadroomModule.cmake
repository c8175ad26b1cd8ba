# headroom_add_module(NAME TIER embed|analyse|run SOURCES ... HEADERS ...
#   [PUBLIC ...] [PRIVATE ...] [PACKAGES ...])
#
# One static library per module, headroom_NAME, used as headroom::NAME here and by whoever finds
# the package. HEADERS are public: installed. Private
# headers need no mention. PUBLIC and PRIVATE are link dependencies and follow the include table in
# tools/check_includes.py. PACKAGES are what find_package must find for those of them that are not
# ours, so that the installed package looks for them too (a static library passes them on).
function(headroom_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 M "" "TIER" "SOURCES;HEADERS;PUBLIC;PRIVATE;PACKAGES")
  set(target headroom_${name})
  add_library(${target} STATIC)
  add_library(headroom::${name} ALIAS ${target})
  list(TRANSFORM M_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/headroom/${name}/)
  list(TRANSFORM M_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/headroom/${name}/)
  target_sources(${target}
    PRIVATE ${M_SOURCES}
    PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${M_HEADERS})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target}
    PUBLIC ${M_PUBLIC}
    PRIVATE ${M_PRIVATE} $<BUILD_INTERFACE:headroom_options>)
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name}
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  set_property(GLOBAL APPEND PROPERTY HEADROOM_MODULES_${M_TIER} ${name})
  set_property(GLOBAL APPEND PROPERTY HEADROOM_PACKAGES_${M_TIER} ${M_PACKAGES})
endfunction()
