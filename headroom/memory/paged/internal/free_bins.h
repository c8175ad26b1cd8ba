// FreeBins: the free blocks of an arena, by size, in bins that are chained through the blocks.
//
// Sizes below 64 KiB have a bin each; above, every power of two has 64, so that blocks of one bin
// differ by 1.6 % at most. A bitmap says which bins are not empty. Filing and taking out a block
// take no search, no memory and no call, and no branch that depends on the block: in random traffic
// the processor guesses those wrong. A request looks at a few blocks of its own bin, and then takes
// the best of the first few in the next bin that has any, where all are large enough.
//
//   bins     ...| 99 KiB |      | 102 KiB |           a request for 100 KiB looks at the blocks of
//   bitmap        1        0      1                   its bin [99, 100.5) KiB, then at the next 1
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "headroom/memory/paged/internal/paged_block.h"
#include "headroom/memory/types.h"

namespace headroom::memory::internal {

class FreeBins {
 public:
  FreeBins() = default;
  FreeBins(const FreeBins&) = delete;
  FreeBins& operator=(const FreeBins&) = delete;

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

  void insert(PagedBlock& block) noexcept {
    const std::size_t bin = bin_of(block.size);
    PagedBlock* const next = heads_[bin];
    block.next_free = next;
    block.free_link = &heads_[bin];
    or_nobody(next)->free_link = &block.next_free;
    heads_[bin] = &block;
    words_[bin / 64] |= bit(bin);
    summary_ |= std::uint64_t{1} << (bin / 64);
    ++count_;
  }

  // The size it was filed with is the size it has.
  void erase(PagedBlock& block) noexcept {
    const std::size_t bin = bin_of(block.size);
    PagedBlock* const next = block.next_free;
    *block.free_link = next;
    or_nobody(next)->free_link = block.free_link;
    std::uint64_t& word = words_[bin / 64];
    word &= ~(std::uint64_t{heads_[bin] == nullptr} << (bin % 64));
    summary_ &= ~(std::uint64_t{word == 0} << (bin / 64));
    --count_;
  }

  // About the smallest block of at least this size, of equal ones the lowest; null when none is.
  [[nodiscard]] PagedBlock* find(std::uint64_t size) const noexcept {
    const std::size_t bin = bin_of(size);
    if (PagedBlock* block = best_of(heads_[bin], size)) return block;
    const std::size_t next = next_bin(bin + 1);
    return next == kBins ? nullptr : best_of(heads_[next], size);
  }

  // Calls function(block) for blocks of at least this size, smaller bins first, until it says no.
  template <class Function>
  void for_each_from(std::uint64_t size, Function&& function) const {
    for (std::size_t bin = next_bin(bin_of(size)); bin < kBins; bin = next_bin(bin + 1)) {
      for (PagedBlock* block = heads_[bin]; block != nullptr; block = block->next_free) {
        if (block->size >= size && !function(*block)) return;
      }
    }
  }
  template <class Function>
  void for_each(Function&& function) const {
    for (std::size_t bin = next_bin(0); bin < kBins; bin = next_bin(bin + 1)) {
      for (PagedBlock* block = heads_[bin]; block != nullptr; block = block->next_free)
        function(*block);
    }
  }

  [[nodiscard]] std::optional<std::string> check() const {
    std::size_t count = 0;
    for (std::size_t bin = 0; bin < kBins; ++bin) {
      const bool is_marked = (words_[bin / 64] & bit(bin)) != 0;
      if (is_marked != (heads_[bin] != nullptr)) return "a bin is marked wrongly";
      const PagedBlock* const* link = &heads_[bin];
      for (const PagedBlock* block = *link; block != nullptr; block = *link) {
        if (bin_of(block->size) != bin) return "a free block is in a bin of another size";
        if (block->free_link != link) return "a bin's chain is broken";
        if (!block->is_free() || !block->is_mapped) return "a bin holds a block that is not free";
        link = &block->next_free;
        ++count;
      }
    }
    if (count != count_) return "free blocks are miscounted";
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kLooks = 8;
  static constexpr std::size_t kPerPower = 64;
  static constexpr std::size_t kPerPowerBits = std::bit_width(kPerPower);
  // Below 1 EiB: 2^51 granules of 512 bytes.
  static constexpr std::size_t kBins = kPerPower * (52 - kPerPowerBits + 1);
  static_assert(kBins % 64 == 0 && kBins / 64 < 64);

  // A block to write to where there is none, so that it need not be asked whether there is.
  [[nodiscard]] PagedBlock* or_nobody(PagedBlock* block) noexcept {
    return block != nullptr ? block : &nobody_;
  }
  [[nodiscard]] static std::uint64_t bit(std::size_t bin) noexcept {
    return std::uint64_t{1} << (bin % 64);
  }
  [[nodiscard]] static std::size_t bin_of(std::uint64_t size) noexcept {
    const std::uint64_t granules = size / kMinBlockBytes;
    // How often the size must be halved to be below 2 * kPerPower granules.
    const auto halvings =
        static_cast<std::size_t>(std::bit_width(granules | kPerPower)) - kPerPowerBits;
    return halvings * kPerPower + (granules >> halvings);
  }
  // The first bin from `bin` on that is not empty; kBins when all are.
  [[nodiscard]] std::size_t next_bin(std::size_t bin) const noexcept {
    if (bin >= kBins) return kBins;
    const std::size_t word = bin / 64;
    if (const std::uint64_t rest = words_[word] >> (bin % 64); rest != 0) {
      return bin + static_cast<std::size_t>(std::countr_zero(rest));
    }
    const std::uint64_t later = word == 63 ? 0 : summary_ >> (word + 1);
    if (later == 0) return kBins;
    const std::size_t next = word + 1 + static_cast<std::size_t>(std::countr_zero(later));
    return next * 64 + static_cast<std::size_t>(std::countr_zero(words_[next]));
  }
  [[nodiscard]] static PagedBlock* best_of(PagedBlock* head, std::uint64_t size) noexcept {
    PagedBlock* best = nullptr;
    std::size_t looks = 0;
    for (PagedBlock* block = head; block != nullptr && looks < kLooks; block = block->next_free) {
      ++looks;
      if (block->size < size) continue;
      if (best == nullptr || block->size < best->size ||
          (block->size == best->size && block->address < best->address)) {
        best = block;
      }
    }
    return best;
  }

  std::uint64_t summary_ = 0;
  std::array<std::uint64_t, kBins / 64 + 1> words_{};
  std::array<PagedBlock*, kBins> heads_{};
  std::size_t count_ = 0;
  PagedBlock nobody_{};
};

}  // namespace headroom::memory::internal
