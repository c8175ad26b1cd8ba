set(HEADROOM_TRACE_SOURCES
  tables.cpp
  trace.cpp
  value.cpp)
set(HEADROOM_TRACE_HEADERS
  tables.h
  trace.h
  value.h)
