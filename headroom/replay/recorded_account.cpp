#include "headroom/replay/recorded_account.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

#include "headroom/analysis/categories.h"
#include "headroom/analysis/sites.h"
#include "headroom/base/checked.h"
#include "headroom/memory/config.h"
#include "headroom/trace/settings.h"

namespace headroom::replay {
namespace {

using analysis::Lifetime;
using analysis::TraceIndex;
using memory::Account;
using memory::DeviceAddress;
using memory::StreamId;
using trace::Action;

std::uint64_t subtract(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

struct Range {
  std::uint64_t size_bytes = 0;
  StreamId stream = StreamId::kDefault;
  bool is_expandable = false;
  std::uint64_t page_bytes = 0;  // where it is expandable
};

// The memory taken from the device, by address. Pages of an expandable segment that touch are one
// range, for a free block may lie across them.
class Ranges {
 public:
  Ranges(const TraceIndex& index, std::uint32_t position, const memory::AllocatorConfig& config)
      : large_page_(config.large_segment_bytes) {
    for (const memory::SegmentInfo& segment : index.start().segments) {
      const std::uint64_t page = segment.is_small ? memory::kSmallSegmentBytes : large_page_;
      put(segment.address, {segment.size_bytes, segment.stream, segment.is_expandable, page});
    }
    for (std::uint32_t event = 0; event < position; ++event) apply(index.events(), event);
  }

  [[nodiscard]] const std::map<DeviceAddress, Range>& all() const noexcept { return ranges_; }

 private:
  void apply(const trace::Events& events, std::uint32_t event) {
    const DeviceAddress address = events.address(event);
    const std::uint64_t size = events.size_bytes(event);
    const auto stream = static_cast<StreamId>(events.stream(event));
    switch (events.action(event)) {
      case Action::kSegmentAlloc:
        return put(address, {size, stream, false});
      case Action::kSegmentMap:
        return put(address, {size, stream, true, page_of(size)});
      case Action::kSegmentFree:
        ranges_.erase(address);
        return;
      case Action::kSegmentUnmap:
        return cut(address, size);
      default:
        return;
    }
  }

  // No event says which pool pages are for, but those of the large one come in its own size.
  [[nodiscard]] std::uint64_t page_of(std::uint64_t mapped_bytes) const {
    return mapped_bytes % large_page_ == 0 ? large_page_ : memory::kSmallSegmentBytes;
  }

  void put(DeviceAddress address, Range range) {
    if (range.is_expandable) {
      auto next = ranges_.lower_bound(address);
      if (next != ranges_.end() && joins(next->second, range) &&
          next->first == address + range.size_bytes) {
        range.size_bytes += next->second.size_bytes;
        range.page_bytes = std::min(range.page_bytes, next->second.page_bytes);
        next = ranges_.erase(next);
      }
      if (next != ranges_.begin()) {
        const auto before = std::prev(next);
        if (joins(before->second, range) && before->first + before->second.size_bytes == address) {
          before->second.size_bytes += range.size_bytes;
          before->second.page_bytes = std::min(before->second.page_bytes, range.page_bytes);
          return;
        }
      }
    }
    ranges_[address] = range;
  }

  static bool joins(const Range& a, const Range& b) {
    return a.is_expandable && b.is_expandable && a.stream == b.stream;
  }

  void cut(DeviceAddress address, std::uint64_t size) {
    auto found = ranges_.upper_bound(address);
    if (found == ranges_.begin()) return;
    --found;
    const DeviceAddress start = found->first;
    const Range range = found->second;
    const DeviceAddress end = start + range.size_bytes;
    if (end < address + size) return;  // contradicts what was mapped
    ranges_.erase(found);
    Range part = range;
    part.size_bytes = address - start;
    if (part.size_bytes > 0) ranges_[start] = part;
    part.size_bytes = end - (address + size);
    if (part.size_bytes > 0) ranges_[address + size] = part;
  }

  std::uint64_t large_page_;
  std::map<DeviceAddress, Range> ranges_;
};

// The free blocks between the live ones, sorted into the lines of the account.
class Cached {
 public:
  Cached(Account& account, StreamId stream) : account_(account), stream_(stream) {}

  // `blocks` are those of the range, by address.
  void add(DeviceAddress start,
           const Range& range,
           const std::map<DeviceAddress, std::uint64_t>& blocks) {
    const DeviceAddress end = start + range.size_bytes;
    DeviceAddress at = start;
    for (auto block = blocks.lower_bound(start); block != blocks.end() && block->first < end;
         ++block) {
      if (block->first > at) gap(at, block->first, start, range);
      at = std::max(at, std::min(block->first + block->second, end));
    }
    if (at < end) gap(at, end, start, range);
  }

 private:
  void gap(DeviceAddress from, DeviceAddress to, DeviceAddress start, const Range& range) {
    const std::uint64_t size = to - from;
    if (range.stream != stream_) {
      account_.cached_stream_bytes += size;
      return;
    }
    const std::uint64_t soft = releasable(from, to, start, range);
    account_.cached_soft_bytes += soft;
    account_.cached_hard_bytes += size - soft;
    account_.largest_cached_bytes = std::max(account_.largest_cached_bytes, size);
  }

  // A whole segment, or the whole pages of an expandable one. Ranges start at a page.
  static std::uint64_t releasable(DeviceAddress from,
                                  DeviceAddress to,
                                  DeviceAddress start,
                                  const Range& range) {
    if (!range.is_expandable) return from == start && to - from == range.size_bytes ? to - from : 0;
    const std::uint64_t page = range.page_bytes;
    const std::uint64_t first = (from - start + page - 1) / page;
    const std::uint64_t last = (to - start) / page;
    return last > first ? (last - first) * page : 0;
  }

  Account& account_;
  StreamId stream_;
};

// A block without a stack is its annotation's, as our own allocators have it.
struct Holder {
  analysis::SiteId site = analysis::kNoSite;
  trace::StringId annotation = 0;

  friend auto operator<=>(const Holder&, const Holder&) = default;
};

void add_sites(Account& account, const TraceIndex& index, const std::vector<std::uint32_t>& held) {
  const trace::Trace& trace = index.trace();
  analysis::Sites sites(trace);
  std::map<Holder, memory::SiteBytes> by_holder;
  for (const std::uint32_t id : held) {
    const Lifetime& block = index.lifetimes()[id];
    Holder holder{.site = sites.site_of(block.stack)};
    if (holder.site == analysis::kNoSite) {
      holder.annotation = trace.details[block.details].user_metadata.value_or(0);
    }
    memory::SiteBytes& site = by_holder[holder];
    site.size_bytes += block.requested_bytes;
    ++site.blocks;
  }
  for (auto& [holder, site] : by_holder) {
    site.site = holder.annotation == 0 ? sites.name(holder.site)
                                       : std::string(trace.strings[holder.annotation]);
    account.sites.push_back(std::move(site));
  }
  std::ranges::sort(account.sites, [](const memory::SiteBytes& a, const memory::SiteBytes& b) {
    return a.size_bytes != b.size_bytes ? a.size_bytes > b.size_bytes : a.site < b.site;
  });
}

void add_live(Account& account,
              const TraceIndex& index,
              std::uint32_t position,
              const analysis::CategoryRules& rules) {
  const std::vector<std::uint32_t> held = index.allocated_at(position);
  const analysis::Categories categories(index, rules);
  std::uint64_t allocated = 0;
  for (const std::uint32_t id : held) {
    const Lifetime& block = index.lifetimes()[id];
    account.live_bytes[static_cast<std::size_t>(categories.category_of(id))] +=
        block.requested_bytes;
    account.rounding_bytes += subtract(block.block_bytes, block.requested_bytes);
    allocated += block.block_bytes;
  }
  std::uint64_t active = 0;
  for (const std::uint32_t id : index.live_at(position)) {
    active += index.lifetimes()[id].block_bytes;
  }
  account.pending_bytes = subtract(active, allocated);
  add_sites(account, index, held);
}

std::map<DeviceAddress, std::uint64_t> extents(const TraceIndex& index, std::uint32_t position) {
  std::map<DeviceAddress, std::uint64_t> out;
  for (const std::uint32_t id : index.live_at(position)) {
    const Lifetime& block = index.lifetimes()[id];
    out[block.address] = block.block_bytes;
  }
  return out;
}

// The failed request, where the position is behind one, and the bytes the device had free then.
void add_request(Account& account,
                 const TraceIndex& index,
                 std::uint32_t position,
                 const memory::AllocatorConfig& config) {
  if (position == 0 || index.events().action(position - 1) != Action::kOutOfMemory) return;
  const trace::Entry failure = index.events()[position - 1];
  account.asked_bytes = failure.size_bytes;
  account.segment_asked_bytes =
      account.page_bytes != 0
          ? checked_round_up(failure.size_bytes, account.page_bytes).value_or(device::kAbsurdSize)
          : memory::new_segment_size(failure.size_bytes, config);
  account.asked_stream = static_cast<StreamId>(failure.stream);
  account.free_bytes = failure.address;
}

// The rest of the card: context, libraries and others where the free bytes are known, else free.
void add_card(Account& account, std::optional<std::uint64_t> card_bytes) {
  const std::uint64_t reserved = account.reserved();
  const bool knows_free = account.asked_bytes != 0;
  const std::uint64_t known = checked_add(reserved, account.free_bytes).value_or(UINT64_MAX);
  account.total_bytes = std::max(card_bytes.value_or(0), known);
  if (!card_bytes) return;
  const std::uint64_t rest = account.total_bytes - known;
  (knows_free ? account.outside_bytes : account.free_bytes) += rest;
}

// PyTorch's snapshots are of CUDA devices.
device::DeviceId device_of(const trace::RecordedDevice& said, const trace::DeviceTrace& device) {
  if (const auto id = device::parse_device_id(said.name)) return *id;
  return {.kind = device::DeviceKind::kCuda, .index = device.device};
}

}  // namespace

Account with_holders(Account account,
                     const TraceIndex& index,
                     std::uint32_t position,
                     const analysis::CategoryRules& rules) {
  Account recorded = recorded_account(index, {.position = position, .rules = rules});
  account.device = recorded.device;
  if (recorded.live() != account.live()) return account;
  account.live_bytes = recorded.live_bytes;
  account.sites = std::move(recorded.sites);
  return account;
}

Account recorded_account(const TraceIndex& index, const AccountRequest& request) {
  memory::AllocatorConfig config = trace::recorded_config(index.trace());
  const trace::RecordedDevice said = trace::recorded_device(index.trace(), index.device());
  if (said.page_bytes != 0) config.large_segment_bytes = said.page_bytes;
  Account account{.device = device_of(said, index.device()),
                  .limit_bytes = request.limit_bytes ? request.limit_bytes : said.limit_bytes,
                  .is_expandable = config.expandable_segments || said.page_bytes != 0,
                  .page_bytes = said.page_bytes};
  add_live(account, index, request.position, request.rules);
  add_request(account, index, request.position, config);
  const auto blocks = extents(index, request.position);
  Cached cached(account, account.asked_stream);
  const Ranges ranges(index, request.position, config);
  for (const auto& [address, range] : ranges.all()) cached.add(address, range, blocks);
  add_card(account, request.card_bytes);
  return account;
}

}  // namespace headroom::replay
