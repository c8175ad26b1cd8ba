// Half of the memory is free. Why is a request for less than half refused, and what serves it?
//
// "Does PyTorch pre-allocate GPU memory?" names compaction as what an allocator may do against
// fragmentation. PyTorch's cannot: its blocks stay where they are. PagedAllocator moves pages
// instead of blocks: the free ones, wherever they lie, are mapped behind one range of addresses.
// Real memory, on the cpu device: what was written before is there afterwards.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <headroom/memory.h>

using namespace headroom;

namespace {

constexpr std::uint64_t kCard = 256_MiB;
constexpr std::uint64_t kPiece = 8_MiB;
constexpr int kPieces = 24;

// The device is full of pieces; then every other one is freed, and 96 MiB in one block are wanted.
class Program {
 public:
  explicit Program(const char* settings)
      : card_(device::CpuDevice::create({.capacity_bytes = kCard})),
        allocator_(make_allocator(*card_, memory::parse_choice(settings).value())) {}

  void fill_and_free() {
    for (int i = 0; i < kPieces; ++i) {
      pieces_.emplace_back(*allocator_, kPiece);
      (void)card_->fill(pieces_.back().address(), mark(i), kPiece, memory::StreamId::kDefault);
    }
    for (int i = 0; i < kPieces; i += 2) pieces_[static_cast<std::size_t>(i)].reset();
  }

  void ask() {
    const memory::Account before = allocator_->account();
    std::printf("%-8s  %s in use, %s free; 96MiB: ",
                std::string(to_string(allocator_->settings().kind())).c_str(),
                format_bytes(before.live()).c_str(),
                format_bytes(kCard - before.live()).c_str());
    try {
      const memory::Buffer large(*allocator_, 96_MiB);
      (void)card_->fill(large.address(), 0, 96_MiB, memory::StreamId::kDefault);
      std::printf("served, reserved %s of %s, %d of %d pieces whole\n",
                  format_bytes(allocator_->account().reserved()).c_str(),
                  format_bytes(kCard).c_str(),
                  whole_pieces(),
                  kPieces / 2);
    } catch (const memory::OutOfMemory& error) {
      std::printf("refused\n          %s\n", error.report().explanation.summary.c_str());
    }
  }

 private:
  static std::uint8_t mark(int piece) { return static_cast<std::uint8_t>(piece + 1); }

  // Those that still have every byte that was written to them.
  int whole_pieces() {
    int whole = 0;
    std::vector<std::uint8_t> bytes(kPiece);
    for (int i = 1; i < kPieces; i += 2) {
      const auto address = pieces_[static_cast<std::size_t>(i)].address();
      (void)card_->copy_to_host(bytes.data(), address, kPiece, memory::StreamId::kDefault);
      whole += bytes == std::vector<std::uint8_t>(kPiece, mark(i)) ? 1 : 0;
    }
    return whole;
  }

  std::unique_ptr<device::CpuDevice> card_;
  std::unique_ptr<memory::Allocator> allocator_;
  std::vector<memory::Buffer> pieces_{};
};

}  // namespace

int main() {
  for (const char* settings : {"backend:native", "backend:paged"}) {
    Program program(settings);
    program.fill_and_free();
    program.ask();
  }
}
