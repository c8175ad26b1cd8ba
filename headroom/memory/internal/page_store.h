// PageStore: the physical pages of a paged allocator, and where they are mapped.
//
// It knows no requests and no limits; the allocator says which window of addresses is wanted and
// what may be done for it. Every function requires the allocator's lock.
//
//   store.begin_search();                                       // which pages are free now?
//   auto window = store.best_window(arena, size);               // lacks the fewest pages
//   auto backed = store.back(arena, *window, {.moves_own = true});
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/device/device.h"
#include "headroom/memory/internal/block.h"
#include "headroom/memory/internal/page_host.h"
#include "headroom/memory/internal/page_table.h"

namespace headroom::memory::internal {

class PageStore {
 public:
  PageStore(device::Device& device, BlockStore& blocks, PageHost& host)
      : device_(device), blocks_(blocks), host_(host) {}
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // --- Arenas, in paged/arenas.cpp ---------------------------------------------------------------

  // The large pages' size is a multiple of the whole ones'; halves are slots of their own where
  // the device can.
  void set_page_sizes(std::uint64_t whole_bytes,
                      std::uint64_t large_bytes,
                      std::uint64_t slab_bytes);
  StreamClock& clock_of(StreamId stream);
  // The arena of a stream and kind, with its addresses reserved; made when first asked for. Slab
  // arenas are parts of one region.
  device::DeviceResult<PageArena*> arena_of(StreamId stream, ArenaKind kind);
  // One to take the place of an arena that was made while addresses were short.
  device::DeviceResult<PageArena*> larger_arena(const PageArena& arena);
  struct AddressRange {
    DeviceAddress base = 0;
    std::uint64_t size = 0;
  };
  // Where slabs are, once there is a slab arena.
  [[nodiscard]] AddressRange slab_region() const noexcept { return slab_region_; }
  // One handle of its own, for a private pool.
  device::DeviceResult<PageArena*> add_private_arena(StreamId stream,
                                                     PoolId pool,
                                                     FreeBins& free,
                                                     std::uint64_t size_bytes);
  // Its only block is free. False when the device keeps it.
  bool release_private_arena(PageArena& arena);

  // The clock of frees: what a block is stamped with when it becomes free.
  [[nodiscard]] std::uint64_t tick() noexcept { return ++clock_; }

  // --- Windows, in paged/windows.cpp -------------------------------------------------------------

  // From here on the device is asked for pages again, although it may have had none before.
  void begin_request() noexcept { is_short_ = false; }
  // Looks which pages are free, and what the streams have finished. What follows is true until
  // the next change of a block.
  void begin_search();
  [[nodiscard]] std::uint64_t search_number() const noexcept { return mark_; }
  [[nodiscard]] std::optional<PageWindow> best_window(const PageArena& arena,
                                                      std::uint64_t size_bytes) const;
  // Slots behind all that were ever mapped; nothing where the arena has no such left.
  [[nodiscard]] std::optional<PageWindow> fresh_window(const PageArena& arena,
                                                       std::uint64_t size_bytes) const;
  // As of the last search: free bytes in pages that hold something else too.
  [[nodiscard]] std::uint64_t stuck_bytes() const noexcept { return stuck_bytes_; }
  // Bytes of the pages that hold nothing now and that a window in a free block would take.
  [[nodiscard]] static std::uint64_t bytes_touched(const Block& block,
                                                   DeviceAddress begin,
                                                   DeviceAddress end) noexcept;

  // --- Pages, in paged/pages.cpp -----------------------------------------------------------------

  // Makes the window part of a free, backed block. When it cannot, nothing is lost: what was
  // created or mapped on the way stays for later. May throw bad_alloc before anything was done.
  Backed back(PageArena& arena, const PageWindow& window, PageSupply supply);
  // Gives free pages back to the device whose size does not fit everywhere in the arena, the
  // longest unused first, until `wanted_bytes` of others fit. Only such as no stream uses any more.
  // True when they fit. Begins a new search.
  bool make_room(const PageArena& arena, std::uint64_t wanted_bytes, bool in_cushion);
  // Gives back at most `most_bytes` of free pages.
  std::uint64_t release_free(std::uint64_t most_bytes);
  // Gives back pages that are at home nowhere: what a request created that failed in the end.
  void release_loose() noexcept;
  // Tries once more to give back what the device would not take.
  void release_strays() noexcept;
  // Unmaps stale slots that nobody uses; at most `most`. Returns how many.
  std::uint64_t retire(std::uint64_t most);
  // Waits until the streams have passed everything that was freed. False when one would not.
  bool wait_for_streams();
  // Asks what the streams have finished, and lets it be asked again for what was freed since.
  void mark_moments();

  // --- Rests, in paged/rest.cpp ------------------------------------------------------------------

  // Free pages go back to where they were at an earlier rest with the same blocks in use, and free
  // blocks into one order, so that what follows does not depend on what was before. May throw
  // bad_alloc; pages that could not go back are free all the same.
  void rest();

  // What decisions may know of a slot. What an earlier step left mapped is as good as nothing: else
  // a step would not decide as the one before did.
  [[nodiscard]] PageSlot seen(const PageArena& arena, std::uint64_t slot) const noexcept {
    if (slot >= arena.slots.size()) return {};
    const PageSlot& is = arena.slots[slot];
    return is.rest == rest_number_ || is_at_home(arena, is) ? is : PageSlot{};
  }

  void set_capturing(bool is_capturing) noexcept { is_capturing_ = is_capturing; }
  [[nodiscard]] bool is_capturing() const noexcept { return is_capturing_; }
  [[nodiscard]] const std::list<PageArena>& arenas() const noexcept { return arenas_; }
  [[nodiscard]] std::list<PageArena>& arenas() noexcept { return arenas_; }
  [[nodiscard]] const std::array<PageClass, kPageSizes>& classes() const noexcept {
    return classes_;
  }
  [[nodiscard]] std::uint64_t bytes_of(PageSize size) const noexcept {
    return of(size).count * of(size).page_bytes;
  }
  // As of the last search: halves of pages are created rather than whole ones.
  [[nodiscard]] bool wants_halves() const noexcept { return wants_halves_; }
  [[nodiscard]] std::uint64_t stale_slots() const noexcept { return stale_; }

  // Blocks of an arena. The parts of a free block after `front`, which becomes a block of its own.
  Block& cut_front(Block& block, std::uint64_t size_bytes);
  // Joins a block that has become free with free neighbours and files it.
  void file_free(Block& block) noexcept;

  // Gives everything back; blocks must be free. What the device keeps is its own.
  void release_all() noexcept;
  [[nodiscard]] std::optional<std::string> check() const;

 private:
  static constexpr std::uint64_t kSlabStreams = 64;
  static constexpr std::uint64_t kMostSlabBytes = 16_GiB;

  struct Need {
    std::uint64_t slot = 0;
    PageClass* pages = nullptr;
    Page* page = nullptr;  // null: to be created
  };
  // Free pages that may be taken, the longest unused first: looked up hole by hole, as they are
  // asked for.
  struct Donors {
    bool is_begun = false;
    std::size_t next_cover = 0;  // of covers_
    std::vector<Page*> pages{};
    std::size_t used = 0;
  };
  struct Plan {
    PageArena* arena = nullptr;
    SlotRange vacant{};           // of the run the window lies in
    std::vector<Need> needs{};    // places to map, by slot
    std::vector<Need> revived{};  // places that get a page back that they still map
    std::vector<Page*> taken{};   // from elsewhere, or created
    std::vector<Page*> kept{};    // at home in the window already
    bool is_blocked = false;      // a stale mapping is in the way that may be in use
    std::uint64_t missing = 0;    // slots for which there is no page
    std::uint64_t created_bytes = 0;
    std::array<Donors, kPageSizes> donors{};
  };

  // Where every page was at home when a step ended.
  struct Rest {
    std::uint64_t blocks = 0;   // a fingerprint of those in use
    std::uint64_t version = 0;  // of the pages
    std::vector<PagePlace> homes{};
    std::vector<std::uint64_t> tops{};  // of the arenas
  };
  struct Return {
    Page* page = nullptr;
    PagePlace home{};
  };

  [[nodiscard]] PageClass& of(PageSize size) noexcept {
    return classes_[static_cast<std::size_t>(size)];
  }
  [[nodiscard]] const PageClass& of(PageSize size) const noexcept {
    return classes_[static_cast<std::size_t>(size)];
  }
  // The first address behind all that were ever mapped.
  [[nodiscard]] DeviceAddress fresh_address(const PageArena& arena) const noexcept {
    const std::uint64_t span = usual_span(arena);
    return arena.address_of((arena.top + span - 1) / span * span);
  }
  // Something is mapped at a slot that may be in use.
  [[nodiscard]] bool is_in_the_way(const PageArena& arena, std::uint64_t slot) const noexcept {
    return slot < arena.slots.size() && arena.slots[slot].page != nullptr &&
           !may_unmap(arena, arena.slots[slot]);
  }
  [[nodiscard]] bool is_free(const Page& page) const noexcept { return page.mark == mark_; }
  // A large page in the arena of small blocks.
  [[nodiscard]] static bool is_out_of_place(const Page& page) noexcept {
    return page.pages->size == PageSize::kLarge && page.home.arena->kind == ArenaKind::kNormal;
  }
  [[nodiscard]] bool can_have(const PageArena& arena,
                              const PageSlot& slot,
                              SlotRange window) const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> window_cost(const PageArena& arena,
                                                         const PageWindow& window,
                                                         std::uint64_t best) const;
  [[nodiscard]] device::DeviceResult<PageArena*> add_arena(StreamId stream,
                                                           ArenaKind kind,
                                                           std::uint64_t least_bytes);
  // Of one arena.
  [[nodiscard]] std::uint64_t most_addresses() const noexcept;
  [[nodiscard]] device::DeviceResult<AddressRange> reserve_range(std::uint64_t least_bytes);
  [[nodiscard]] device::DeviceResult<AddressRange> reserve_slab_region();
  [[nodiscard]] device::DeviceResult<AddressRange> next_slab_range();
  void poll(StreamClock& clock) noexcept;
  void take_back_large();
  void mark_moment(StreamClock& clock);

  // Plans, in paged/plan.cpp.
  void draw_plan(Plan& plan, const PageWindow& window, PageSupply supply);
  [[nodiscard]] bool may_revive(const PageArena& arena,
                                const Page& page,
                                PageSupply supply) const noexcept;
  [[nodiscard]] bool may_unmap(const PageArena& arena, const PageSlot& slot) const noexcept {
    return !is_capturing_ && slot.idle_since <= arena.clock->done;
  }
  [[nodiscard]] SlotRange with_whole_pages(const PageArena& arena,
                                           SlotRange touched,
                                           SlotRange vacant) const noexcept;
  [[nodiscard]] std::uint64_t usual_span(const PageArena& arena) const noexcept;
  void fill_ends(Plan& plan, SlotRange& run, PageSupply supply);
  void fill_run(Plan& plan, SlotRange run, PageSupply supply);
  [[nodiscard]] std::uint64_t fill_next(Plan& plan, SlotRange run, PageSupply supply);
  bool obtain_usual(Plan& plan, std::uint64_t slot, PageSupply supply);
  bool obtain(Plan& plan, std::uint64_t slot, PageClass& pages, PageSupply supply);
  bool create(Plan& plan, std::uint64_t slot, PageClass& pages, bool in_cushion);
  void give_up_last(Plan& plan) const noexcept;
  [[nodiscard]] bool may_create(const Plan& plan, const PageClass& pages, bool in_cushion) const;
  [[nodiscard]] Page* donor(Plan& plan, PageClass& pages, PageSupply supply);
  void sort_covers(const StreamClock& own);
  [[nodiscard]] bool has_room(const Plan& plan, std::uint64_t slot, std::uint64_t span) const;
  void forget(Plan& plan) const noexcept;
  static void revive_mapped(Plan& plan);
  void prepare_commit(Plan& plan);
  [[nodiscard]] device::DeviceResult<void> create_missing(Plan& plan);
  [[nodiscard]] device::DeviceResult<Page*> create_page(PageClass& pages);
  [[nodiscard]] device::DeviceResult<void> order_streams(const Plan& plan) noexcept;
  [[nodiscard]] device::DeviceResult<void> unmap_stale(Plan& plan) noexcept;
  [[nodiscard]] device::DeviceResult<void> map_needs(Plan& plan) noexcept;
  [[nodiscard]] device::DeviceResult<void> map_run(Plan& plan,
                                                   std::size_t first,
                                                   std::size_t last) noexcept;
  Block& commit(Plan& plan) noexcept;
  void leave_homes(std::vector<Page*>& pages) noexcept;
  void unback(Block& cover, PageArena& arena, SlotRange range) noexcept;
  Block& arrive(PageArena& arena, SlotRange range) noexcept;
  [[nodiscard]] device::DeviceResult<void> unmap_place(Page& page, PagePlace place) noexcept;
  [[nodiscard]] bool can_unmap_all(const Page& page) const noexcept;
  bool release_page(Page& page) noexcept;
  [[nodiscard]] std::vector<Page*> pages_to_replace(const PageArena& arena);
  void release_some(PageClass& pages, std::uint64_t most_bytes, std::uint64_t& released);

  template <class Function>
  void for_each_page(Function&& function);
  [[nodiscard]] std::uint64_t blocks_in_use() const;
  void note_rest(std::uint64_t blocks);
  void return_to(const Rest& rest);
  void bring_home(PageArena& arena, const std::vector<Return>& returns);
  void order_free();

  device::Device& device_;
  BlockStore& blocks_;
  PageHost& host_;
  std::array<PageClass, kPageSizes> classes_{};
  std::uint64_t slot_bytes_ = 0;
  // As of the last search.
  bool wants_halves_ = false;
  std::uint64_t stuck_bytes_ = 0;
  std::vector<Block*> covers_{};  // free blocks with pages that lie wholly in them
  const StreamClock* covers_sorted_for_ = nullptr;
  AddressRange slab_region_{};
  DeviceAddress slab_reservation_ = 0;
  std::uint64_t slab_arenas_ = 0;
  std::list<PageArena> arenas_{};
  std::deque<StreamClock> clocks_{};
  std::uint64_t clock_ = 0;
  std::uint64_t mark_ = 0;
  std::uint64_t stale_ = 0;
  std::uint64_t large_in_normal_ = 0;
  bool is_capturing_ = false;
  bool is_short_ = false;            // the device had no page left
  std::uint64_t pages_version_ = 0;  // changes when a page comes or goes
  std::deque<Rest> rests_{};         // the newest last
  std::uint64_t rest_number_ = 0;    // of the last; 0 before the first
  // What the device would not take back.
  std::vector<DeviceAddress> stray_reservations_{};
  std::vector<device::PageHandle> stray_handles_{};
  std::vector<device::PageHandle> handles_{};  // of one call
};

}  // namespace headroom::memory::internal
