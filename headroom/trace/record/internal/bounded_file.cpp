#include "headroom/trace/record/internal/bounded_file.h"

#include <algorithm>

#include "headroom/base/error.h"

namespace headroom::trace::internal {
namespace {

constexpr std::uint64_t kPackedEntryBytes = 16;  // more than one takes in a file

}  // namespace

BoundedFile::BoundedFile(std::string path, bool overwrite, std::uint64_t max_bytes)
    : path_(std::move(path)), max_bytes_(max_bytes) {
  if (max_bytes_ != 0 && max_bytes_ < kLeastFileBytes) {
    throw InvalidArgument("a recording needs room for at least 1 MiB, and " + path_ + " may have " +
                          std::to_string(max_bytes_) + " bytes");
  }
  file_ = std::make_unique<OutputFile>(path_, overwrite);
  target_ = file_.get();
}

void BoundedFile::note(const DeviceKey& key, std::span<const Entry> entries) {
  if (max_bytes_ == 0) return;
  auto known = std::ranges::find(live_, key, &std::pair<DeviceKey, LiveEntries>::first);
  if (known == live_.end()) known = live_.insert(live_.end(), {key, LiveEntries()});
  known->second.apply(entries);
}

bool BoundedFile::make_room(HrtWriter& writer, const std::function<void()>& write_devices) {
  if (max_bytes_ == 0) return true;
  if (writer.finished_bytes() - current_.finished_bytes < max_bytes_ / kPartOfSpan) return true;
  if (has_oldest_ && !let_oldest_go(writer, write_devices)) return false;
  has_oldest_ = true;
  current_ = {.begin = writer.written_bytes(),
              .finished_bytes = writer.finished_bytes(),
              .held = held_now()};
  return true;
}

bool BoundedFile::let_oldest_go(HrtWriter& writer, const std::function<void()>& write_devices) {
  const std::uint64_t end = writer.written_bytes();
  std::unique_ptr<OutputFile> fresh;
  try {
    fresh = std::make_unique<OutputFile>(path_ + ".new", true);
  } catch (const Error& error) {
    error_ = error.what();
    return false;
  }
  target_ = fresh.get();
  writer.restart();
  write_devices();
  for (const auto& [key, entries] : current_.held) writer.events(key, entries);
  const bool is_read =
      writer.take_over([this](std::uint64_t offset,
                              std::span<std::byte> out) { return file_->read_at(offset, out); },
                       current_.begin,
                       end);
  if (!is_read || !writer.ok() || !fresh->rename_to(path_)) {
    error_ = is_read ? fresh->error() : "its older part cannot be read: " + file_->error();
    fresh->remove();
    target_ = file_.get();
    return false;
  }
  file_ = std::move(fresh);
  return true;
}

BoundedFile::Held BoundedFile::held_now() const {
  Held held;
  std::uint64_t count = 0;
  for (const auto& [key, live] : live_) {
    held.emplace_back(key, live.all());
    count += held.back().second.size();
  }
  // So much is held that it would take the room of what happens.
  if (count * kPackedEntryBytes > max_bytes_ / kPartOfTables) held.clear();
  return held;
}

}  // namespace headroom::trace::internal
