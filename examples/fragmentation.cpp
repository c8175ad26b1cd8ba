// Why does 128 MiB not fit when only 8 MiB are in use?
//
// Because the 8 MiB lie in the middle of two segments of 120 MiB, neither of which can be given
// back. Then what helps: max_split_size_mb, expandable_segments, and from within the program an
// empty_cache() at the right moment, or smaller pieces.
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include <headroom/memory.h>

using namespace headroom;

namespace {

constexpr int kPieces = 60;

struct Program {
  explicit Program(const char* settings = "")
      : allocator(*card, {.config = memory::parse_config(settings).value().config}) {}

  // Two large tensors come and go; of the small ones after them, two stay.
  void run(bool empties_cache = false) {
    for (int i = 0; i < 2; ++i) held.emplace_back(allocator, 120_MiB);
    held.clear();
    if (empties_cache) allocator.empty_cache();
    std::vector<memory::Buffer> pieces;
    pieces.reserve(kPieces);
    for (int i = 0; i < kPieces; ++i) pieces.emplace_back(allocator, 4_MiB);
    held.push_back(std::move(pieces[14]));
    held.push_back(std::move(pieces[44]));
  }

  void ask(const char* what, int count, std::uint64_t size_bytes) {
    try {
      for (int i = 0; i < count; ++i) held.emplace_back(allocator, size_bytes);
      std::printf("%-26s fits, reserved %s\n", what, format_bytes(reserved()).c_str());
    } catch (const memory::OutOfMemory& error) {
      std::printf("%-26s %s\n", what, error.report().explanation.summary.c_str());
    }
  }

  // What the snippets read as memory_stats()["active_blocks.all.current"], and which they are.
  void list_active_blocks() const {
    std::printf("active.all.current = %lld\n",
                static_cast<long long>(flatten(allocator.statistics())["active.all.current"]));
    for (const memory::SegmentInfo& segment : allocator.segments()) {
      for (const memory::BlockInfo& block : segment.blocks) {
        if (block.state != memory::BlockState::kAllocated) continue;
        std::printf("  %s at %s of a segment of %s\n",
                    format_bytes(block.size_bytes).c_str(),
                    format_bytes(block.address - segment.address).c_str(),
                    format_bytes(segment.size_bytes).c_str());
      }
    }
  }

  [[nodiscard]] std::uint64_t reserved() const { return allocator.account().reserved(); }

  std::unique_ptr<device::CpuDevice> card = device::CpuDevice::create({.capacity_bytes = 256_MiB});
  memory::CachingAllocator allocator;
  std::vector<memory::Buffer> held{};
};

}  // namespace

int main() {
  Program plain;
  plain.run();
  plain.list_active_blocks();
  plain.ask("defaults", 1, 128_MiB);
  plain.ask("in four pieces", 4, 32_MiB);

  Program unsplit("max_split_size_mb:64");  // the large segments are not cut
  unsplit.run();
  unsplit.ask("max_split_size_mb:64", 1, 128_MiB);

  Program expandable("expandable_segments:True");  // pages go back, not segments
  expandable.run();
  expandable.ask("expandable_segments:True", 1, 128_MiB);

  Program tidy;
  tidy.run(/*empties_cache=*/true);  // before the small ones find large segments to cut
  tidy.ask("empty_cache() in between", 1, 128_MiB);
}
