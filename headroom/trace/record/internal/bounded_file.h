// The file of a recording, which may have a size that it does not exceed.
//
// What is written falls into spans, each a quarter of that size. When a span is full, the one
// before it goes: the file is made anew beside the old one, and takes its place. It begins with all
// tables and with what was held when the span that stays began, so that no free lacks its
// allocation:
//
//   | tables | held | span that stays | span that is written |
//
// so that both files together are never larger than what was asked for. Tables, and what is held,
// may take a twenty-fourth of it each. Beyond that, stacks that are new are not kept, and the file
// begins without what is held.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headroom/trace/hrt/hrt_writer.h"
#include "headroom/trace/record/internal/live_entries.h"
#include "headroom/trace/record/internal/output_file.h"

namespace headroom::trace::internal {

inline constexpr std::uint64_t kLeastFileBytes = std::uint64_t{1} << 20U;

class BoundedFile {
 public:
  // 0 is no bound. Throws Error when the file cannot be made.
  BoundedFile(std::string path, bool overwrite, std::uint64_t max_bytes);

  bool write(std::span<const std::byte> bytes) noexcept { return target_->write(bytes); }
  // Events that the writer was given.
  void note(const DeviceKey& key, std::span<const Entry> entries);
  // Lets the oldest events go where it is time to. `write_devices` makes the devices known again.
  // False when that failed; the file is as it was then, and nothing more may be written.
  bool make_room(HrtWriter& writer, const std::function<void()>& write_devices);
  // In bytes, for stacks that are new.
  [[nodiscard]] std::uint64_t room_for_stacks(const HrtWriter& writer) const noexcept {
    if (max_bytes_ == 0) return std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t most = max_bytes_ / kPartOfTables;
    return most - std::min(most, writer.table_bytes());
  }
  [[nodiscard]] bool has_room_for(std::uint64_t more_bytes) const noexcept {
    return max_bytes_ == 0 || more_bytes < max_bytes_ / kPartOfSpan;
  }

  bool close() noexcept { return file_->close(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // Why the last call failed.
  [[nodiscard]] std::string error() const { return error_.empty() ? target_->error() : error_; }

 private:
  static constexpr std::uint64_t kPartOfSpan = 4;
  static constexpr std::uint64_t kPartOfTables = 24;

  using Held = std::vector<std::pair<DeviceKey, std::vector<Entry>>>;
  struct Span {
    std::uint64_t begin = 0;           // in the file
    std::uint64_t finished_bytes = 0;  // of the file, had it ended there
    Held held{};
  };

  bool let_oldest_go(HrtWriter& writer, const std::function<void()>& write_devices);
  [[nodiscard]] Held held_now() const;

  std::string path_;
  std::uint64_t max_bytes_;
  std::unique_ptr<OutputFile> file_;
  OutputFile* target_;  // the file, or the one that will take its place
  std::string error_{};
  std::vector<std::pair<DeviceKey, LiveEntries>> live_{};
  bool has_oldest_ = false;  // a span before the one that is written
  Span current_{};
};

}  // namespace headroom::trace::internal
