// Blocks that other processes map: their pages go there as file descriptors.
#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/base/fork.h"
#include "headroom/device/page_sharing.h"

#include "bindings/pytorch/bridge/convert.h"
#include "bindings/pytorch/bridge/descriptors.h"
#include "bindings/pytorch/bridge/process.h"

namespace headroom::bridge {
namespace {

using device::DeviceAddress;
using device::PageHandle;

// One block may lie on this many pages: 16 GiB of the usual ones, 128 GiB of large ones.
constexpr std::size_t kMostPages = 4096;
// Blocks that are remembered as shared; the oldest are forgotten.
constexpr std::size_t kMostShared = 65536;

device::PageSharing& sharing_of(device::Device& device) {
  if (device::PageSharing* const sharing = device.sharing()) return *sharing;
  throw Error(to_string(device.id()) + " shares no memory with other processes");
}

// What this process has shared.
class SharedBlocks {
 public:
  static SharedBlocks& instance() {
    static SharedBlocks& blocks = *new SharedBlocks;
    return blocks;
  }

  std::string share(device::Device& device, std::vector<memory::PageAt> pages) {
    const std::lock_guard lock(mutex_);
    if (server_ == nullptr || made_.is_forked()) {
      server_ =
          new DescriptorServer([this](std::uint64_t id, std::size_t first, std::size_t count) {
            return answer(id, first, count);
          });
      made_ = ForkMark();
    }
    const std::size_t count = pages.size();
    // The same pages at the same place are the same memory.
    const auto known = std::ranges::find_if(entries_, [&](const Entry& entry) {
      return entry.device == &device && is_same(entry.pages, pages);
    });
    if (known != entries_.end()) return server_->ticket(known->id, count);
    if (entries_.size() >= kMostShared) entries_.pop_front();
    entries_.push_back({.id = next_id_++, .device = &device, .pages = std::move(pages)});
    return server_->ticket(entries_.back().id, count);
  }

 private:
  struct Entry {
    std::uint64_t id = 0;
    device::Device* device = nullptr;
    std::vector<memory::PageAt> pages{};
  };

  static bool is_same(const std::vector<memory::PageAt>& a, const std::vector<memory::PageAt>& b) {
    return std::ranges::equal(a, b, [](const memory::PageAt& x, const memory::PageAt& y) {
      return x.handle == y.handle && x.address == y.address;
    });
  }

  std::vector<SharedPiece> answer(std::uint64_t id, std::size_t first, std::size_t count) {
    Entry entry;
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::ranges::find(entries_, id, &Entry::id);
      if (found == entries_.end()) throw Error("the tensor was shared too long ago");
      entry = *found;
    }
    std::vector<SharedPiece> pieces;
    for (std::size_t i = first; i < std::min(first + count, entry.pages.size()); ++i) {
      const auto exported = sharing_of(*entry.device).export_pages(entry.pages[i].handle);
      if (!exported) throw Error(to_string(exported.error()));
      pieces.push_back({.descriptor = *exported, .size_bytes = entry.pages[i].size_bytes});
    }
    return pieces;
  }

  std::mutex mutex_;
  ForkMark made_{};
  DescriptorServer* server_ = nullptr;
  std::uint64_t next_id_ = 1;
  std::deque<Entry> entries_;
};

// Pages of another process, mapped here for as long as somebody holds them.
class OpenedPages {
 public:
  OpenedPages(device::Device& device, const std::string& ticket) : device_(device) {
    device::PageSharing& sharing = sharing_of(device_);
    std::vector<PageHandle> handles;
    const auto release = [&] {
      for (const PageHandle handle : handles) (void)device_.release_pages(handle);
    };
    try {
      fetch_descriptors(ticket, [&](const SharedPiece& piece) {
        handles.reserve(handles.size() + 1);
        const auto imported = sharing.import_pages(piece.descriptor, piece.size_bytes);
        if (!imported) throw Error("shared memory: " + to_string(imported.error()));
        handles.push_back(*imported);
        size_ += piece.size_bytes;
      });
      map(handles);
    } catch (...) {
      release();
      throw;
    }
    release();  // the mappings keep them
  }
  ~OpenedPages() {
    (void)device_.unmap_pages(base_, size_);
    (void)device_.release_addresses(base_);
  }
  OpenedPages(const OpenedPages&) = delete;
  OpenedPages& operator=(const OpenedPages&) = delete;

  [[nodiscard]] DeviceAddress base() const noexcept { return base_; }

 private:
  void map(const std::vector<PageHandle>& handles) {
    const auto base = device_.reserve_addresses(size_);
    if (!base) throw Error("shared memory: " + to_string(base.error()));
    base_ = *base;
    const auto mapped = device_.map_pages(base_, handles);
    if (mapped) return;
    (void)device_.release_addresses(base_);
    throw Error("shared memory: " + to_string(mapped.error()));
  }

  device::Device& device_;
  DeviceAddress base_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace

ShareableBlock DeviceMemory::share(void* block) const {
  (void)sharing_of(impl_->device);
  const auto place = impl_->allocator.locate(to_address(block));
  if (!place) throw Error("share: the address is not a block that is held");
  std::vector<memory::PageAt> pages = impl_->allocator.pages_of(place->block.address);
  if (pages.empty()) throw Error("share: the block has no pages");
  if (pages.size() > kMostPages) {
    throw Error("share: a tensor of " + format_bytes(place->block.size_bytes) + " lies on " +
                std::to_string(pages.size()) + " pages, and at most " + std::to_string(kMostPages) +
                " are passed to another process; send it in parts, or set "
                "HEADROOM_ALLOC_CONF=page_mb:32");
  }
  const auto offset = static_cast<std::ptrdiff_t>(to_address(block) - pages.front().address);
  return {.offset_bytes = offset,
          .handle = SharedBlocks::instance().share(impl_->device, std::move(pages))};
}

std::shared_ptr<void> DeviceMemory::open_shared(const std::string& handle) const {
  if (!is_ticket(handle)) {
    throw Error(
        "the tensor comes from a process without headroom; enable it in both, or in neither");
  }
  auto opened = std::make_shared<OpenedPages>(impl_->device, handle);
  void* const base = to_pointer(opened->base());
  return {std::move(opened), base};
}

void DeviceMemory::allow_peer(int index) const {
  const auto allowed = sharing_of(impl_->device).allow_peer(index);
  if (!allowed) throw Error(to_string(allowed.error()));
}

}  // namespace headroom::bridge
