// PageSleep: the pages of blocks that sleep go back to the device, and come back at the same
// addresses.
//
// A block that sleeps stays where it is among the blocks of its arena, so that nobody gets its
// addresses. A page goes back when nothing but sleeping blocks and holes touch it; the parts of
// holes in it become gaps, which nobody gets either, because addresses are backed slot by slot.
// A page that a block touches which is awake stays, and the sleeping block's end in it with it.
//
//   awake      | held | sleeper ...                    | hole |   held   |
//   pages      |   p1     |   p2     |   p3     |   p4     |   p5        |
//
//   asleep     | held | sleeper ...                    |gap| hole | held |
//   pages      |   p1     |  sleeps  |  sleeps  |  sleeps  |   p5        |
//
// Every function requires the allocator's lock, and that none of the sleeping blocks is in use by
// any stream.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/paged/internal/page_budget.h"
#include "headroom/memory/paged/internal/page_table.h"

namespace headroom::memory::internal {

// Slots whose page was given back, and the size that it had.
struct SleepingPage {
  PageArena* arena = nullptr;
  std::uint64_t slot = 0;
  PageClass* pages = nullptr;

  [[nodiscard]] DeviceAddress begin() const noexcept { return arena->address_of(slot); }
  [[nodiscard]] DeviceAddress end() const noexcept { return begin() + pages->page_bytes; }
};

class PageSleep {
 public:
  PageSleep(device::Device& device,
            BlockStore<PagedBlock>& blocks,
            StreamClocks& clocks,
            PageTable& table,
            PageBudget& budget) noexcept
      : device_(device), blocks_(blocks), clocks_(clocks), table_(table), budget_(budget) {}
  PageSleep(const PageSleep&) = delete;
  PageSleep& operator=(const PageSleep&) = delete;

  // Gives back the pages under a sleeping block that nothing awake touches. What the device will
  // not take stays, and so does what there is no host memory to write down.
  void give_back(PagedBlock& sleeper) noexcept;
  // The bytes of the pages that these blocks lack.
  [[nodiscard]] std::uint64_t missing_bytes(std::span<PagedBlock* const> sleepers) const;
  // Brings back the pages that these blocks lack. Where the device fails, some are back and the
  // others are not; a second call goes on. Throws bad_alloc likewise.
  [[nodiscard]] device::DeviceResult<void> bring_back(std::span<PagedBlock* const> sleepers);
  // Nobody holds the block any more: what of it is backed becomes a hole, and the rest unbacked,
  // but for what other sleeping blocks share a page with. May throw bad_alloc before anything
  // changed.
  void leave(PagedBlock& sleeper);

  // Of a sleeping block: the parts that are backed. Calls function(begin, end) for each, by
  // address.
  template <class Function>
  void for_each_backed(const PagedBlock& sleeper, Function&& function) const {
    DeviceAddress at = sleeper.address;
    const DeviceAddress end = sleeper.address + sleeper.size;
    for (auto it = first_touching(at); it != pages_.end() && it->first < end; ++it) {
      if (it->second.begin() > at) function(at, it->second.begin());
      at = it->second.end();
    }
    if (at < end) function(at, end);
  }
  // A sentence about the first rule of ../types.h that is broken, or nothing.
  [[nodiscard]] std::optional<std::string> check() const;

 private:
  using Pages = std::map<DeviceAddress, SleepingPage>;  // by their begin

  [[nodiscard]] Pages::const_iterator first_touching(DeviceAddress address) const noexcept;
  // Those that a block touches.
  [[nodiscard]] std::vector<SleepingPage> touched_by(const PagedBlock& block) const;
  void give_back(Page& page, PagedBlock& sleeper);
  [[nodiscard]] bool unmap(Page& page) noexcept;
  void fall_asleep(Page& page, PagedBlock& sleeper) noexcept;
  void make_gaps(PagedBlock& sleeper, const SleepingPage& page) noexcept;
  [[nodiscard]] device::DeviceResult<void> bring_run(std::span<const SleepingPage> run,
                                                     PagedBlock& sleeper);
  void awake(Page& page, const SleepingPage& place, PagedBlock& sleeper) noexcept;
  void drop(const SleepingPage& page, PagedBlock& inside) noexcept;
  [[nodiscard]] std::optional<std::string> check_page(const SleepingPage& page) const;
  [[nodiscard]] std::optional<std::string> check_arena(const PageArena& arena) const;

  device::Device& device_;
  BlockStore<PagedBlock>& blocks_;
  StreamClocks& clocks_;
  PageTable& table_;
  PageBudget& budget_;
  Pages pages_{};
  std::vector<device::PageHandle> handles_{};  // of one call
};

}  // namespace headroom::memory::internal
