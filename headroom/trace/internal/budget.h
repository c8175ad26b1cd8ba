// The bounds on reading a file, by its size: docs/format/reading.md states it. Whoever keeps
// something asks here first, so that a file of a few bytes cannot fill the memory, whatever it
// claims, repeats or refers to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "headroom/base/bytes.h"
#include "headroom/trace/internal/failure.h"

namespace headroom::trace::internal {

// The most memory that a reader may take: a fixed part, and a part per byte of the file. A real
// recording takes 3 to 5 bytes per byte unpacked.
inline constexpr std::uint64_t kFreeBytes = 64_MiB;
inline constexpr std::uint64_t kMostPerUnpackedByte = 32;
inline constexpr std::uint64_t kMostPerFileByte = 1024;
// The most events, segments, blocks, frames, keys and values together: one per byte, and these.
inline constexpr std::uint64_t kFreeItems = 4096;

class Budget {
 public:
  // `file_bytes` are those on the disk, packed or not.
  explicit Budget(std::uint64_t file_bytes) : file_bytes_(file_bytes) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // `bytes` more came out of the file, which allows more memory. It does not take any.
  void add_unpacked(std::uint64_t bytes) {
    unpacked_bytes_ += bytes;
    items_ += bytes;
    most_bytes_ = kFreeBytes + std::min(times(unpacked_bytes_, kMostPerUnpackedByte),
                                        times(file_bytes_, kMostPerFileByte));
  }

  void take(std::uint64_t bytes) {
    if (bytes > most_bytes_ - taken_bytes_) fail_memory();
    taken_bytes_ += bytes;
  }
  void give_back(std::uint64_t bytes) noexcept { taken_bytes_ -= bytes; }

  // Values of a pickle are shared, so a few bytes can name a list a million times; a real snapshot
  // never has more items than bytes.
  void spend_items(std::uint64_t count) {
    if (count > items_) fail_unfolding();
    items_ -= count;
  }

 private:
  static std::uint64_t times(std::uint64_t bytes, std::uint64_t factor) {
    return std::min(bytes, UINT64_MAX / 4 / factor) * factor;
  }
  [[noreturn]] void fail_memory() const {
    fail("reading it takes more than " + format_bytes(most_bytes_) + " of memory for a file of " +
         format_bytes(file_bytes_) +
         ", many times what a recording takes: it is damaged, or made to do harm");
  }
  [[noreturn]] static void fail_unfolding() {
    fail(
        "the snapshot unfolds to far more than its size, because it refers to the same parts "
        "again and again: it is damaged, or made to do harm");
  }

  std::uint64_t file_bytes_;
  std::uint64_t unpacked_bytes_ = 0;
  std::uint64_t items_ = kFreeItems;
  std::uint64_t most_bytes_ = kFreeBytes;
  std::uint64_t taken_bytes_ = 0;
};

}  // namespace headroom::trace::internal
