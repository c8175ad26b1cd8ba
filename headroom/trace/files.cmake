# Symbols by libdw where it is installed; else the dynamic linker names exported functions.
if(libdw_FOUND)
  set(HEADROOM_SYMBOLISER internal/symboliser_libdw.cpp)
  set(HEADROOM_LIBDW libdw::libdw)
  set(HEADROOM_LIBDW_PACKAGE libdw)
else()
  set(HEADROOM_SYMBOLISER internal/symboliser_dladdr.cpp)
endif()
set(HEADROOM_TRACE_SOURCES
  file.cpp
  file_recorder.cpp
  format_error.cpp
  history.cpp
  hrt_reader.cpp
  hrt_writer.cpp
  internal/crc32c.cpp
  internal/demangle.cpp
  internal/final_state.cpp
  internal/free_path.cpp
  internal/hrt_decoder.cpp
  internal/hrt_events.cpp
  internal/hrt_format.cpp
  internal/hrt_items.cpp
  internal/modules.cpp
  internal/output_file.cpp
  internal/raw_frame.cpp
  internal/settings.cpp
  internal/stack_interner.cpp
  internal/stack_walk.cpp
  internal/substitute.cpp
  ${HEADROOM_SYMBOLISER}
  internal/tick_clock.cpp
  internal/trace_builder.cpp
  ring_recorder.cpp
  symbols.cpp
  tables.cpp
  trace.cpp
  value.cpp)
set(HEADROOM_TRACE_HEADERS
  file.h
  file_recorder.h
  format_error.h
  history.h
  hrt_reader.h
  hrt_writer.h
  ring_recorder.h
  stack_options.h
  symbols.h
  tables.h
  trace.h
  value.h)
