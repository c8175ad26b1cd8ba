#include "headroom/device/meta/internal/meta_state.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>

#include "headroom/device/internal/status.h"

namespace headroom::device::internal {
namespace {

constexpr std::uint64_t kRestoredAlignment = 512;

DeviceResult<void> check_size(std::uint64_t size_bytes, std::uint64_t step) noexcept {
  if (size_bytes > 0 && size_bytes < kAbsurdSize && size_bytes % step == 0) return {};
  return fail(StatusCode::kInvalidArgument, "a size in the state cannot be", size_bytes, step);
}

class Rebuilder {
 public:
  explicit Rebuilder(RebuiltState& out) : out_(out) {}

  DeviceResult<void> add(const MetaState::Segment& segment) {
    if (auto size = check_size(segment.size_bytes, 1); !size) return size;
    if (segment.address % kRestoredAlignment != 0) {
      return fail(StatusCode::kInvalidArgument, "a segment is not aligned", segment.address);
    }
    auto added = out_.ledger.add_segment(segment.address, segment.size_bytes);
    if (added) out_.gaps.take(segment.address, segment.size_bytes);
    return added;
  }

  DeviceResult<void> add(const MetaState::Reservation& reservation) {
    if (auto size = check_size(reservation.size_bytes, granularity()); !size) return size;
    auto added = out_.ledger.add_reservation(reservation.address, reservation.size_bytes);
    if (!added) return added;
    out_.gaps.take(reservation.address, reservation.size_bytes);
    for (const MetaState::MappedPages& pages : reservation.pages) {
      // Ledger::map takes any reservation that holds the range; the state names the one it means.
      if (pages.address - reservation.address >= reservation.size_bytes) {
        return fail(StatusCode::kInvalidArgument, "pages outside their reservation", pages.address);
      }
      const auto handle = find_or_add(pages.size_bytes, pages.handle, pages.is_released);
      if (!handle) return Unexpected(handle.error());
      const auto mapped = out_.ledger.map(pages.address, std::span(&*handle, 1));
      if (!mapped) return Unexpected(mapped.error());
      out_.restored.push_back({.address = pages.address, .handle = *handle});
    }
    return {};
  }

  DeviceResult<void> add(const MetaState::UnmappedPages& pages) {
    if (names_.contains(pages.handle)) {
      return fail(
          StatusCode::kInvalidArgument, "a handle is given twice", to_integer(pages.handle));
    }
    const auto handle = find_or_add(pages.size_bytes, pages.handle, false);
    if (!handle) return Unexpected(handle.error());
    out_.restored.push_back({.address = 0, .handle = *handle});
    return {};
  }

  // Last, because a released handle cannot be mapped any more.
  DeviceResult<void> release_what_was_released() noexcept {
    for (const PageHandle handle : released_) {
      if (auto done = out_.ledger.release_pages(handle); !done) return Unexpected(done.error());
    }
    return {};
  }

 private:
  struct Known {
    PageHandle handle = PageHandle::kNone;  // the new one
    std::uint64_t size_bytes = 0;
    bool is_released = false;
  };

  [[nodiscard]] std::uint64_t granularity() const noexcept {
    return out_.ledger.limits().granularity_bytes;
  }

  DeviceResult<PageHandle> find_or_add(std::uint64_t size_bytes,
                                       PageHandle name,
                                       bool is_released) {
    if (auto size = check_size(size_bytes, granularity()); !size) return Unexpected(size.error());
    if (const auto it = names_.find(name); it != names_.end()) {
      const Known& known = it->second;
      if (known.size_bytes == size_bytes && known.is_released == is_released) return known.handle;
      return fail(StatusCode::kInvalidArgument, "aliases of one handle differ", to_integer(name));
    }
    auto handle = out_.ledger.add_pages(size_bytes, 0);
    if (!handle) return handle;
    if (is_released) released_.push_back(*handle);
    if (name != PageHandle::kNone) names_.emplace(name, Known{*handle, size_bytes, is_released});
    return handle;
  }

  RebuiltState& out_;
  std::unordered_map<PageHandle, Known> names_;  // by the handle in the state
  std::vector<PageHandle> released_;
};

}  // namespace

DeviceResult<RebuiltState> rebuild(const MetaState& state, Ledger ledger, GapMap gaps) {
  RebuiltState out{.ledger = std::move(ledger), .gaps = std::move(gaps)};
  Rebuilder rebuilder(out);
  const auto add_all = [&](const auto& items) -> DeviceResult<void> {
    for (const auto& item : items) {
      if (auto added = rebuilder.add(item); !added) return added;
    }
    return {};
  };
  if (auto done = add_all(state.segments); !done) return Unexpected(done.error());
  if (auto done = add_all(state.reservations); !done) return Unexpected(done.error());
  if (auto done = add_all(state.unmapped_pages); !done) return Unexpected(done.error());
  if (auto done = rebuilder.release_what_was_released(); !done) return Unexpected(done.error());
  return out;
}

MetaState describe(const Ledger& ledger) {
  MetaState out;
  for (const auto& [address, size] : ledger.segments()) out.segments.push_back({address, size});
  auto mapping = ledger.mappings().begin();
  for (const auto& [address, size] : ledger.reservations()) {
    out.reservations.push_back({.address = address, .size_bytes = size});
    std::vector<MetaState::MappedPages>& pages = out.reservations.back().pages;
    for (; mapping != ledger.mappings().end() && mapping->first - address < size; ++mapping) {
      const Mapping& mapped = mapping->second;
      pages.push_back({.address = mapped.address,
                       .size_bytes = mapped.size_bytes,
                       .handle = mapped.handle,
                       .is_released = ledger.all_pages().at(mapped.handle).is_released});
    }
  }
  for (const auto& [handle, record] : ledger.all_pages()) {
    if (record.mappings == 0) out.unmapped_pages.push_back({record.size_bytes, handle});
  }
  std::ranges::sort(out.unmapped_pages, {}, &MetaState::UnmappedPages::handle);
  return out;
}

}  // namespace headroom::device::internal
