#include "headroom/train/meter.h"

#include <numeric>

namespace headroom::train {

std::uint64_t total(const CategoryBytes& bytes) noexcept {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

Meter::Meter(memory::Allocator& allocator, bool keeps_log)
    : allocator_(allocator), keeps_log_(keeps_log) {
  allocator_.add_sink(*this, memory::kBlockActions);
}

Meter::~Meter() { allocator_.remove_sink(*this); }

void Meter::record(const memory::Event& event) noexcept {
  const bool is_alloc = event.action == memory::Action::kAlloc;
  if (!is_alloc && event.action != memory::Action::kFreeRequested) return;
  const std::uint64_t bytes = event.block_bytes;
  std::uint64_t& own = now_[static_cast<std::size_t>(event.category)];
  own += is_alloc ? bytes : std::uint64_t{0} - bytes;
  allocated_ += is_alloc ? bytes : std::uint64_t{0} - bytes;
  if (is_alloc && allocated_ >= peak_.allocated) {
    peak_ = {.allocated = allocated_,
             .categories = now_,
             .annotation = event.annotation,
             .change = changes_};
  }
  ++changes_;
  print_.add(event.address).add(bytes).add(is_alloc ? 1 : 0);
  if (!keeps_log_) return;
  log_.push_back({.is_alloc = is_alloc,
                  .category = event.category,
                  .annotation = event.annotation,
                  .address = event.address,
                  .bytes = bytes});
}

}  // namespace headroom::train
