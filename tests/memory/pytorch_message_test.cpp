#include "headroom/memory/pytorch_message.h"

#include <gtest/gtest.h>

namespace headroom::memory {
namespace {

// The card of a message found in the wild; its sizes, to the two decimals it prints.
Account example_account() {
  Account account{.device = {device::DeviceKind::kCuda, 0},
                  .total_bytes = 8_GiB,
                  .rounding_bytes = 1_MiB,
                  .cached_hard_bytes = 512_MiB,
                  .free_bytes = 49_MiB + 451 * 1_KiB,
                  .asked_bytes = 937_MiB,
                  .segment_asked_bytes = 938_MiB};
  account.live_bytes[0] = 4_GiB - 1_MiB;
  account.processes = {{.pid = 12622, .used_bytes = 948_MiB, .name = "x", .is_self = false},
                       {.pid = 77, .used_bytes = 5_GiB, .name = "y", .is_self = true}};
  return account;
}

constexpr const char* kStart =
    "CUDA out of memory. Tried to allocate 938.00 MiB. GPU 0 has a total capacity of 8.00 GiB of "
    "which 49.44 MiB is free. Process 12622 has 948.00 MiB memory in use. Including non-PyTorch "
    "memory, this process has 5.00 GiB memory in use. ";
constexpr const char* kAllocated =
    "Of the allocated memory 4.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by "
    "PyTorch but unallocated.";
constexpr const char* kAdvice29 =
    " If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation "
    "for Memory Management  "
    "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)";
constexpr const char* kAdvice210 =
    " If reserved but unallocated memory is large try setting "
    "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation "
    "for Memory Management  "
    "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)";
constexpr const char* kAdvice211 =
    " If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation "
    "for Memory Management  "
    "(https://docs.pytorch.org/docs/stable/notes/"
    "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";

std::string with(const char* advice) { return std::string(kStart) + kAllocated + advice; }

TEST(PyTorchMessage, FollowsTheVersion) {
  const Account account = example_account();
  EXPECT_EQ(pytorch_message(account, {.version = kPyTorch29}), with(kAdvice29));
  EXPECT_EQ(pytorch_message(account, {.version = kPyTorch210}), with(kAdvice210));
  EXPECT_EQ(pytorch_message(account, {.version = kPyTorch211}), with(kAdvice211));
  EXPECT_EQ(pytorch_message(account), with(kAdvice211));
  EXPECT_EQ(pytorch_message(account, {.version = kPyTorch215}), with(kAdvice211));
}

TEST(PyTorchMessage, NamesTheLimitAndPrivatePools) {
  Account account = example_account();
  account.device.index = 3;
  account.processes.clear();
  account.limit_bytes = 5_GiB;
  EXPECT_EQ(pytorch_message(account, {.private_cached_bytes = 128_MiB}),
            std::string("CUDA out of memory. Tried to allocate 938.00 MiB. GPU 3 has a total "
                        "capacity of 8.00 GiB of which 49.44 MiB is free. 5.00 GiB allowed; Of the "
                        "allocated memory 4.12 GiB is allocated by PyTorch, with 128.00 MiB "
                        "allocated in private pools (e.g., CUDA Graphs), and 384.00 MiB is "
                        "reserved by PyTorch but unallocated.") +
                kAdvice211);
}

TEST(PyTorchMessage, WithExpandableSegmentsTheAdviceChanges) {
  Account account = example_account();
  account.is_expandable = true;
  EXPECT_EQ(pytorch_message(account, {.version = kPyTorch213}), with(kAdvice211));
  EXPECT_EQ(pytorch_message(account, {.version = kPyTorch214}), with(""));
  EXPECT_EQ(
      pytorch_message(account, {.version = kPyTorch215}),
      with(" expandable_segments is enabled. If instead the process is running out of virtual "
           "address space (VSZ), expandable segments may be over-reserving VA (each segment "
           "reserves ~9/8 of device memory, times the number of streams); reduce it via "
           "PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / "
           "expandable_segments_reserve_by_class."));
}

TEST(PyTorchMessage, ARequestPastTheReservationIsToldSo) {
  Account account = example_account();
  account.is_expandable = true;
  const PyTorchMessageOptions options{.version = kPyTorch215, .expandable_reserve_bytes = 512_MiB};
  EXPECT_EQ(pytorch_message(account, options),
            with(" This allocation exceeds the expandable-segment reserve of 512.00 MiB for this "
                 "stream, and a single allocation cannot span expandable segments. Raise "
                 "PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve or "
                 "expandable_segments_reserve_by_class (or unset it) so that a segment is at least "
                 "938.00 MiB."));
  account.segment_asked_bytes = 9_GiB;  // past the device itself: the reservation is not to blame
  EXPECT_NE(pytorch_message(account, options).find("expandable_segments is enabled."),
            std::string::npos);
}

TEST(PyTorchMessage, WhatWouldWrapIsZero) {
  const Account account{.segment_asked_bytes = 2_MiB};
  EXPECT_NE(pytorch_message(account, {.private_cached_bytes = 1})
                .find("and 0 bytes is reserved by PyTorch but unallocated."),
            std::string::npos);
}

TEST(PyTorchMessage, OtherRefusals) {
  EXPECT_EQ(pytorch_rejection_message(3_MiB),
            "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
            "per_process_memory_fraction limit. Requested size: 3.00 MiB");
  EXPECT_EQ(pytorch_absurd_size_message(),
            "CUDA out of memory. Tried to allocate more than 1EB memory.");
}

TEST(PyTorchSize, ABoundaryBelongsToTheLowerUnit) {
  struct Row {
    std::uint64_t size_bytes;
    const char* text;
  };
  for (const Row& row : {Row{0, "0 bytes"},
                         Row{1, "1 bytes"},
                         Row{1024, "1024 bytes"},
                         Row{1025, "1.00 KiB"},
                         Row{1536, "1.50 KiB"},
                         Row{1_MiB, "1024.00 KiB"},
                         Row{1_MiB + 1, "1.00 MiB"},
                         Row{20_MiB, "20.00 MiB"},
                         Row{1_GiB, "1024.00 MiB"},
                         Row{1_GiB + 1, "1.00 GiB"},
                         Row{150109880320, "139.80 GiB"},
                         Row{UINT64_MAX, "17179869184.00 GiB"}}) {
    EXPECT_EQ(pytorch_size(row.size_bytes), row.text);
  }
}

}  // namespace
}  // namespace headroom::memory
