// PageStore: the physical pages of a paged allocator, and where they are mapped.
//
// It knows no requests and no limits; the allocator says which window of addresses is wanted and
// what may be done for it. Every function requires the allocator's lock.
//
//   store.begin_search();                                       // which pages are free now?
//   auto window = store.best_window(arena, size);               // lacks the fewest pages
//   auto backed = store.back(arena, *window, {.moves_own = true});
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/internal/block.h"
#include "headroom/memory/internal/page_table.h"

namespace headroom::memory::internal {

// What the store asks of the allocator, and tells it.
class PageHost {
 public:
  PageHost() = default;
  PageHost(const PageHost&) = delete;
  PageHost& operator=(const PageHost&) = delete;

  // How many bytes more may be reserved: within the cushion, or at all.
  [[nodiscard]] virtual std::uint64_t room_in_cushion() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t room_in_limit() const noexcept = 0;
  // Physical memory came or went.
  virtual void page_created(bool is_slab, std::uint64_t size_bytes) noexcept = 0;
  virtual void page_released(bool is_slab, std::uint64_t size_bytes) noexcept = 0;
  // Pages are at home at these addresses now, or no more.
  virtual void pages_arrived(const PageArena& arena, DeviceAddress at, std::uint64_t size) noexcept = 0;
  virtual void pages_left(const PageArena& arena, DeviceAddress at, std::uint64_t size) noexcept = 0;

 protected:
  ~PageHost() = default;
};

struct PageWindow {
  DeviceAddress begin = 0;
  DeviceAddress end = 0;
  // The run of addresses without a held block that it lies in.
  DeviceAddress run_begin = 0;
  DeviceAddress run_end = 0;
};

// Where missing pages may come from, in this order.
struct PageSupply {
  bool creates_in_cushion = false;
  bool moves_own = false;     // free pages of the same stream
  bool moves_others = false;  // of other streams, behind an event
  bool creates = false;       // up to the limit
};

// The device has no room, as opposed to being broken.
[[nodiscard]] bool is_shortage(const device::DeviceStatus& status) noexcept;

enum class Backing : std::uint8_t { kDone, kTooFew, kDeviceFailed };

struct Backed {
  Backing outcome = Backing::kTooFew;
  Block* block = nullptr;  // free, backed, and around the window
  device::DeviceStatus status{};
  std::uint64_t missing_pages = 0;  // where there were too few
};

class PageStore {
 public:
  PageStore(device::Device& device, BlockStore& blocks, PageHost& host)
      : device_(device), blocks_(blocks), host_(host) {}
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // --- Arenas, in paged/arenas.cpp ---------------------------------------------------------------

  PageClass& add_class(std::uint64_t page_bytes, bool is_slab);
  StreamClock& clock_of(StreamId stream);
  // The arena of a stream and class, with its addresses reserved; made when first asked for.
  device::DeviceResult<PageArena*> arena_of(StreamId stream, PageClass& pages);
  // One handle of its own, for a private pool.
  device::DeviceResult<PageArena*> add_private_arena(StreamId stream,
                                                     PoolId pool,
                                                     FreeIndex& free,
                                                     std::uint64_t size_bytes);
  // Its only block is free. False when the device keeps it.
  bool release_private_arena(PageArena& arena);

  // The clock of frees: what a block is stamped with when it becomes free.
  [[nodiscard]] std::uint64_t tick() noexcept { return ++clock_; }

  // --- Windows, in paged/windows.cpp -------------------------------------------------------------

  // Looks which pages are free, and what the streams have finished. What follows is true until
  // the next change of a block.
  void begin_search();
  [[nodiscard]] std::optional<PageWindow> best_window(const PageArena& arena,
                                                      std::uint64_t size_bytes) const;
  // Slots behind all that were ever mapped; nothing where the arena has no such left.
  [[nodiscard]] static std::optional<PageWindow> fresh_window(const PageArena& arena,
                                                              std::uint64_t size_bytes);
  // How many pages that hold nothing now a window in a free block would take.
  [[nodiscard]] static std::uint64_t pages_touched(const Block& block,
                                                   DeviceAddress begin,
                                                   DeviceAddress end) noexcept;

  // --- Pages, in paged/pages.cpp -----------------------------------------------------------------

  // Makes the window part of a free, backed block. When it cannot, nothing is lost: what was
  // created or mapped on the way stays for later. May throw bad_alloc before anything was done.
  Backed back(PageArena& arena, const PageWindow& window, PageSupply supply);
  // Gives free pages of other sizes back to the device, the longest unused first, until
  // `wanted_bytes` fit. Only such as no stream uses any more. True when they fit.
  bool make_room(const PageClass& wanted, std::uint64_t wanted_bytes, bool in_cushion);
  // Gives back at most `most_bytes` of free pages.
  std::uint64_t release_free(std::uint64_t most_bytes);
  // Unmaps stale slots that nobody uses; at most `most`. Returns how many.
  std::uint64_t retire(std::uint64_t most);
  // Waits until the streams have passed everything that was freed. False when one would not.
  bool wait_for_streams();
  // All bytes of free pages, as of the last search; and those of one stream.
  [[nodiscard]] std::uint64_t free_bytes() const noexcept;

  void set_capturing(bool is_capturing) noexcept { is_capturing_ = is_capturing; }
  [[nodiscard]] bool is_capturing() const noexcept { return is_capturing_; }
  [[nodiscard]] const std::list<PageArena>& arenas() const noexcept { return arenas_; }
  [[nodiscard]] std::list<PageArena>& arenas() noexcept { return arenas_; }
  [[nodiscard]] const std::deque<PageClass>& classes() const noexcept { return classes_; }
  [[nodiscard]] std::uint64_t stale_slots() const noexcept { return stale_; }

  // Blocks of an arena. The parts of a free block after `front`, which becomes a block of its own.
  Block& cut_front(Block& block, std::uint64_t size_bytes);
  // Joins a block that has become free with free neighbours and files it.
  void file_free(Block& block) noexcept;

  // Gives everything back; blocks must be free. What the device keeps is its own.
  void release_all() noexcept;
  [[nodiscard]] std::optional<std::string> check() const;

 private:
  struct Need {
    std::uint64_t slot = 0;
    Page* page = nullptr;  // null: to be created
  };
  struct Plan {
    PageArena* arena = nullptr;
    std::vector<Need> needs{};        // slots to map
    std::vector<Need> revived{};      // slots that get a page back that they still map
    std::vector<Page*> taken{};       // from elsewhere, or created
    std::vector<Page*> kept{};        // at home in the window already
    std::uint64_t to_create = 0;
  };

  [[nodiscard]] bool is_free(const Page& page) const noexcept { return page.mark == mark_; }
  [[nodiscard]] std::optional<std::uint64_t> window_cost(const PageArena& arena,
                                                         const PageWindow& window,
                                                         std::uint64_t best) const;
  void poll(StreamClock& clock) noexcept;
  void mark_moment(StreamClock& clock);

  [[nodiscard]] std::uint64_t draw_plan(Plan& plan, const PageWindow& window, PageSupply supply);
  void take_donors(Plan& plan, PageSupply supply, std::uint64_t count);
  void forget(Plan& plan) noexcept;
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
  bool unmap_slot(PageArena& arena, std::uint64_t slot) noexcept;
  bool can_unmap_all(const Page& page) const noexcept;
  bool release_page(PageClass& pages, Page& page) noexcept;

  device::Device& device_;
  BlockStore& blocks_;
  PageHost& host_;
  std::deque<PageClass> classes_{};
  std::list<PageArena> arenas_{};
  std::deque<StreamClock> clocks_{};
  std::uint64_t clock_ = 0;
  std::uint64_t mark_ = 0;
  std::uint64_t stale_ = 0;
  bool is_capturing_ = false;
  std::vector<DeviceAddress> stray_reservations_{};
  std::vector<device::PageHandle> handles_{};  // of one call
};

}  // namespace headroom::memory::internal
