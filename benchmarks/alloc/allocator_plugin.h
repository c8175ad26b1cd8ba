// How `bench alloc` calls an allocator that lives in a shared library: a table of C functions, so
// that neither side needs the other's compiler, standard library or exceptions.
//
//   extern "C" const HeadroomAllocatorPlugin* headroom_allocator_plugin();
#pragma once

#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): the names of a C interface

#define HEADROOM_ALLOCATOR_PLUGIN_VERSION 1
#define HEADROOM_ALLOCATOR_PLUGIN_SYMBOL "headroom_allocator_plugin"

extern "C" {

// Functions that can fail return 0 or null when they did; last_error() of the same thread then
// says why. Nothing throws.
struct HeadroomAllocatorPlugin {
  int version;  // HEADROOM_ALLOCATOR_PLUGIN_VERSION
  const char* (*name)();
  // Once, before all else.
  int (*open)(int device);
  // Once by each thread that allocates.
  int (*enter_thread)(int device);
  void* (*allocate)(std::uint64_t size_bytes);
  int (*free)(void* address);
  // Gives cached memory back.
  void (*empty_cache)();
  const char* (*last_error)();
};

}  // extern "C"

// NOLINTEND(readability-identifier-naming)
