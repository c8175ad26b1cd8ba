// The columns of an event block. A column is a number per event, most of them small: differences to
// the event before, so that what repeats looks the same to zstd.
#include <algorithm>
#include <bit>
#include <map>

#include "headroom/trace/hrt/internal/hrt_format.h"
#include "headroom/trace/hrt/internal/hrt_items.h"

namespace headroom::trace::internal {
namespace {

// How many low bits no address of the block uses.
int address_shift(std::span<const Entry> entries) noexcept {
  std::uint64_t used = 0;
  for (const Entry& entry : entries) used |= entry.address;
  return used == 0 ? 0 : std::countr_zero(used);
}

// Streams in order of appearance: handles are large numbers, and few. Remembers the last one, since
// programs use the same many times in a row.
class StreamNumbers {
 public:
  std::uint32_t operator()(std::uint64_t stream) {
    if (!streams_.empty() && stream == streams_[last_]) return last_;
    const auto [found, is_new] =
        numbers_.try_emplace(stream, static_cast<std::uint32_t>(streams_.size()));
    if (is_new) streams_.push_back(stream);
    return last_ = found->second;
  }
  [[nodiscard]] const std::vector<std::uint64_t>& streams() const noexcept { return streams_; }

 private:
  std::vector<std::uint64_t> streams_;
  std::map<std::uint64_t, std::uint32_t> numbers_;  // in order: no file makes it slow
  std::uint32_t last_ = 0;
};

// The difference of each number to the one before.
template <class Get>
void encode_steps(ByteWriter& out,
                  std::span<const Entry> entries,
                  std::uint64_t before,
                  const Get& get) {
  for (const Entry& entry : entries) {
    const std::uint64_t now = get(entry);
    out.zigzag(static_cast<std::int64_t>(now - before));
    before = now;
  }
}

template <class Set>
void decode_steps(ByteReader& in,
                  std::span<Entry> entries,
                  std::uint64_t before,
                  const Set& set) noexcept {
  for (Entry& entry : entries) {
    before += static_cast<std::uint64_t>(in.zigzag());
    set(entry, before);
  }
}

// Ids that must be below `bound`: looked at once, at the largest.
template <class Set>
void decode_ids(ByteReader& in,
                std::span<Entry> entries,
                std::uint32_t bound,
                const char* why,
                const Set& set) noexcept {
  std::uint64_t largest = 0;
  decode_steps(in, entries, 0, [&](Entry& entry, std::uint64_t id) {
    largest = std::max(largest, id);
    set(entry, static_cast<std::uint32_t>(id));
  });
  if (largest >= bound) in.fail(why);
}

void decode_actions(ByteReader& in, std::span<Entry> entries) noexcept {
  std::uint8_t largest = 0;
  for (Entry& entry : entries) {
    const std::uint8_t action = in.byte();
    largest = std::max(largest, action);
    entry.action = static_cast<Action>(action);
  }
  if (largest >= memory::kActionCount) in.fail("an action is not known");
}

void decode_streams(ByteReader& in,
                    std::span<Entry> entries,
                    std::span<const std::uint64_t> streams) noexcept {
  for (Entry& entry : entries) {
    const std::uint32_t at = in.index(streams.size(), "it refers to a stream that is not there");
    if (!in.ok()) return;
    entry.stream = streams[at];
  }
}

}  // namespace

void encode_events(ByteWriter& out, std::span<const Entry> entries, std::int64_t first_time_us) {
  const int shift = address_shift(entries);
  StreamNumbers number_of;
  for (const Entry& entry : entries) (void)number_of(entry.stream);
  out.byte(static_cast<std::uint8_t>(shift));
  out.varint(number_of.streams().size());
  for (const std::uint64_t stream : number_of.streams()) out.varint(stream);

  for (const Entry& entry : entries) out.byte(static_cast<std::uint8_t>(entry.action));
  encode_steps(out, entries, 0, [&](const Entry& entry) { return entry.address >> shift; });
  for (const Entry& entry : entries) out.varint(entry.size_bytes);
  for (const Entry& entry : entries) out.varint(number_of(entry.stream));
  encode_steps(out, entries, static_cast<std::uint64_t>(first_time_us), [](const Entry& entry) {
    return static_cast<std::uint64_t>(entry.time_us);
  });
  encode_steps(out, entries, 0, [](const Entry& entry) { return entry.stack; });
  encode_steps(out, entries, 0, [](const Entry& entry) { return entry.details; });
}

void decode_events(ByteReader& in,
                   const TableSizes& sizes,
                   std::size_t count,
                   std::int64_t first_time_us,
                   BigVector<Entry>& entries) {
  entries.clear();
  const int shift = in.byte();
  if (shift > 63) in.fail("the addresses are shifted too far");
  BigVector<std::uint64_t> streams(in.count(1),
                                   BigAllocator<std::uint64_t>(entries.get_allocator()));
  for (std::uint64_t& stream : streams) stream = in.varint();
  if (in.ok() && count > in.left() / kLeastEventBytes) {
    in.fail("it says that it has more events than it can hold");
  }
  if (!in.ok()) return;
  entries.resize(count);
  decode_actions(in, entries);
  decode_steps(in, entries, 0, [shift](Entry& entry, std::uint64_t value) {
    entry.address = value << shift;
  });
  for (Entry& entry : entries) entry.size_bytes = in.varint();
  decode_streams(in, entries, streams);
  decode_steps(
      in,
      entries,
      static_cast<std::uint64_t>(first_time_us),
      [](Entry& entry, std::uint64_t value) { entry.time_us = static_cast<std::int64_t>(value); });
  decode_ids(in,
             entries,
             sizes.stacks,
             "it refers to a stack that is not there",
             [](Entry& entry, std::uint32_t id) { entry.stack = id; });
  decode_ids(in,
             entries,
             sizes.details,
             "it refers to details that are not there",
             [](Entry& entry, std::uint32_t id) { entry.details = id; });
}

}  // namespace headroom::trace::internal
