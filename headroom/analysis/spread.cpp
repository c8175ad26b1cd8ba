#include "headroom/analysis/spread.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "headroom/analysis/sites.h"
#include "headroom/base/bytes.h"

namespace headroom::analysis {
namespace {

constexpr std::uint64_t kPage = 2_MiB;
constexpr std::uint64_t kFullPart = 10;

struct UsedPage {
  std::uint64_t used_bytes = 0;
  std::vector<std::uint32_t> blocks{};  // that lie wholly in it
};

std::unordered_map<std::uint64_t, UsedPage> pages_at(const TraceIndex& index,
                                                     std::uint32_t position) {
  std::unordered_map<std::uint64_t, UsedPage> pages;
  for (const std::uint32_t id : index.live_at(position)) {
    const Lifetime& block = index.lifetimes()[id];
    const std::uint64_t end = block.address + block.block_bytes;
    const std::uint64_t first = block.address / kPage;
    const std::uint64_t last = (std::max(end, block.address + 1) - 1) / kPage;
    if (first == last) {
      UsedPage& page = pages[first];
      page.used_bytes += block.block_bytes;
      page.blocks.push_back(id);
      continue;
    }
    // Pages in the middle are full.
    pages[first].used_bytes += (first + 1) * kPage - block.address;
    pages[last].used_bytes += end - last * kPage;
  }
  return pages;
}

class SiteOfMost {
 public:
  explicit SiteOfMost(const Trace& trace) : sites_(trace) {}

  void add(const Lifetime& block) { bytes_[sites_.site_of(block.stack)] += block.block_bytes; }
  [[nodiscard]] std::string name() const {
    SiteId most = kNoSite;
    std::uint64_t bytes = 0;
    for (const auto& [site, held] : bytes_) {
      if (held < bytes || (held == bytes && site > most)) continue;
      most = site;
      bytes = held;
    }
    return most == kNoSite ? "" : sites_.name(most);
  }

 private:
  Sites sites_;
  std::unordered_map<SiteId, std::uint64_t> bytes_{};
};

}  // namespace

std::optional<Spread> find_spread(const TraceIndex& index, std::uint32_t position) {
  Spread out;
  SiteOfMost sites(index.trace());
  for (const auto& [number, page] : pages_at(index, position)) {
    if (page.blocks.empty() || page.used_bytes * kFullPart >= kPage) continue;
    ++out.pages;
    out.kept_bytes += kPage - page.used_bytes;
    for (const std::uint32_t id : page.blocks) {
      const Lifetime& block = index.lifetimes()[id];
      ++out.blocks;
      out.live_bytes += block.block_bytes;
      sites.add(block);
    }
  }
  if (out.pages == 0) return std::nullopt;
  out.site = sites.name();
  return out;
}

}  // namespace headroom::analysis
