// BlockKernels: fills blocks of device memory with a pattern, and counts the words that differ
// from it, on the card itself. The pattern is a block's own, so that a word of another block, of
// the same block at another place, or of an earlier owner is a wrong word.
//
//   const NativeContext context(cuda);          // current in this thread
//   const BlockKernels kernels(cuda);
//   kernels.fill({address, size}, 7, native_stream);
//   kernels.check({address, size}, 7, wrong, native_stream);   // adds to the u64 at `wrong`
//
// As PTX, which the driver compiles: the C++ compiler alone builds the tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "headroom/device/device.h"

#include "tests/support/native_cuda.h"

namespace headroom::testing {

class BlockKernels {
 public:
  static constexpr std::uint64_t kWordBytes = 4;

  struct Range {
    std::uint64_t address = 0;  // a multiple of a word
    std::uint64_t size_bytes = 0;
  };

  // Throws std::runtime_error when the driver does not take them.
  explicit BlockKernels(const NativeCuda& cuda) : cuda_(cuda) {
    void* module = nullptr;
    expect(cuda_.load_module(&module, kSource), "cuModuleLoadData");
    expect(cuda_.get_function(&fill_, module, "fill"), "cuModuleGetFunction");
    expect(cuda_.get_function(&check_, module, "check"), "cuModuleGetFunction");
  }

  // Whole words of the range; what is left at its end is not touched.
  void fill(Range range, std::uint32_t seed, void* stream) const {
    std::uint64_t words = range.size_bytes / kWordBytes;
    std::array<void*, 3> parameters{&range.address, &words, &seed};
    launch(fill_, words, parameters.data(), stream);
  }
  void check(Range range, std::uint32_t seed, std::uint64_t wrong, void* stream) const {
    std::uint64_t words = range.size_bytes / kWordBytes;
    std::array<void*, 4> parameters{&range.address, &words, &seed, &wrong};
    launch(check_, words, parameters.data(), stream);
  }

 private:
  static void expect(int result, const char* call) {
    if (result != 0) {
      throw std::runtime_error(std::string(call) + " answered " + std::to_string(result));
    }
  }

  void launch(void* kernel, std::uint64_t words, void** parameters, void* stream) const {
    constexpr unsigned kThreads = 256;
    constexpr std::uint64_t kMostBlocks = 1024;
    if (words == 0) return;
    const auto blocks =
        static_cast<unsigned>(std::min((words + kThreads - 1) / kThreads, kMostBlocks));
    expect(cuda_.launch(kernel, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr),
           "cuLaunchKernel");
  }

  // Word i of a block is i * 1640531527 + seed, modulo 2^32.
  static constexpr const char* kSource = R"ptx(
.version 6.4
.target sm_70
.address_size 64

.visible .entry fill(.param .u64 base_, .param .u64 words_, .param .u32 seed_)
{
  .reg .pred %done;
  .reg .u32 %a, %b, %c, %seed, %low, %value;
  .reg .u64 %base, %words, %i, %step, %at;
  ld.param.u64 %base, [base_];
  ld.param.u64 %words, [words_];
  ld.param.u32 %seed, [seed_];
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %c, %tid.x;
  mad.lo.u32 %a, %a, %b, %c;
  cvt.u64.u32 %i, %a;
  mov.u32 %c, %nctaid.x;
  mul.lo.u32 %b, %b, %c;
  cvt.u64.u32 %step, %b;
LOOP:
  setp.ge.u64 %done, %i, %words;
  @%done ret;
  cvt.u32.u64 %low, %i;
  mad.lo.u32 %value, %low, 1640531527, %seed;
  shl.b64 %at, %i, 2;
  add.u64 %at, %at, %base;
  st.global.u32 [%at], %value;
  add.u64 %i, %i, %step;
  bra LOOP;
}

.visible .entry check(
  .param .u64 base_, .param .u64 words_, .param .u32 seed_, .param .u64 wrong_)
{
  .reg .pred %done, %differs;
  .reg .u32 %a, %b, %c, %seed, %low, %value, %found, %count;
  .reg .u64 %base, %words, %wrong, %i, %step, %at, %many;
  ld.param.u64 %base, [base_];
  ld.param.u64 %words, [words_];
  ld.param.u32 %seed, [seed_];
  ld.param.u64 %wrong, [wrong_];
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %c, %tid.x;
  mad.lo.u32 %a, %a, %b, %c;
  cvt.u64.u32 %i, %a;
  mov.u32 %c, %nctaid.x;
  mul.lo.u32 %b, %b, %c;
  cvt.u64.u32 %step, %b;
  mov.u32 %count, 0;
LOOP:
  setp.ge.u64 %done, %i, %words;
  @%done bra END;
  cvt.u32.u64 %low, %i;
  mad.lo.u32 %value, %low, 1640531527, %seed;
  shl.b64 %at, %i, 2;
  add.u64 %at, %at, %base;
  ld.global.cg.u32 %found, [%at];
  setp.ne.u32 %differs, %found, %value;
  @%differs add.u32 %count, %count, 1;
  add.u64 %i, %i, %step;
  bra LOOP;
END:
  setp.eq.u32 %done, %count, 0;
  @%done ret;
  cvt.u64.u32 %many, %count;
  red.global.add.u64 [%wrong], %many;
  ret;
}
)ptx";

  const NativeCuda& cuda_;
  void* fill_ = nullptr;
  void* check_ = nullptr;
};

// A stream of somebody else's, known to the device as well: kernels take the one name, the
// allocator the other.
class NativeTestStream {
 public:
  NativeTestStream(const NativeCuda& cuda, device::Device& device) : cuda_(cuda), device_(device) {
    if (cuda_.create_stream(&native_, NativeCuda::kNonBlocking) != 0) {
      throw std::runtime_error("no stream could be made");
    }
    id_ = device_.adopt_stream(reinterpret_cast<device::NativeStream>(native_)).value();
  }
  NativeTestStream(const NativeTestStream&) = delete;
  NativeTestStream& operator=(const NativeTestStream&) = delete;
  ~NativeTestStream() {
    (void)device_.release_stream(id_);
    (void)cuda_.destroy_stream(native_);
  }

  [[nodiscard]] void* native() const { return native_; }
  [[nodiscard]] device::StreamId id() const { return id_; }

 private:
  const NativeCuda& cuda_;
  device::Device& device_;
  void* native_ = nullptr;
  device::StreamId id_{};
};

}  // namespace headroom::testing
