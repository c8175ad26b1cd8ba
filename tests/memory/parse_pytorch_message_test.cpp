#include "headroom/memory/parse_pytorch_message.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/memory/pytorch_message.h"

namespace headroom::memory {
namespace {

using ::testing::HasSubstr;

constexpr const char* kText =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
    "capacity of 23.65 GiB of which 1.19 GiB is free. Process 4711 has 2.00 GiB memory in use. "
    "Including non-PyTorch memory, this process has 20.44 GiB memory in use. Of the allocated "
    "memory 17.10 GiB is allocated by PyTorch, and 2.84 GiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";

std::uint64_t gib(double value) { return static_cast<std::uint64_t>(value * 0x1p30 + 0.5); }

void expect_text(const PyTorchMessage& message) {
  EXPECT_EQ(message.asked_bytes, 2_GiB);
  EXPECT_EQ(message.device, 1);
  EXPECT_EQ(message.total_bytes, gib(23.65));
  EXPECT_EQ(message.free_bytes, gib(1.19));
  EXPECT_EQ(message.this_process_bytes, gib(20.44));
  ASSERT_EQ(message.other_processes.size(), 1U);
  EXPECT_EQ(message.other_processes[0].pid, 4711);
  EXPECT_EQ(message.other_processes[0].used_bytes, 2_GiB);
  EXPECT_EQ(message.allocated_bytes, gib(17.10));
  EXPECT_EQ(message.unallocated_bytes, gib(2.84));
  EXPECT_FALSE(message.limit_bytes);
}

TEST(ParsePyTorchMessage, ReadsEveryNumber) {
  const auto message = parse_pytorch_message(kText);
  ASSERT_TRUE(message) << message.error();
  expect_text(*message);
}

TEST(ParsePyTorchMessage, ReadsItOutOfALog) {
  const std::string log = "step 12 loss 3.4\n[rank0]: Traceback (most recent call last):\n" +
                          ("\x1b[31m[rank0]: " + std::string(kText)) + "\x1b[0m\nbye 1.00 GiB\n";
  const auto message = parse_pytorch_message(log);
  ASSERT_TRUE(message) << message.error();
  expect_text(*message);
}

TEST(ParsePyTorchMessage, ReadsItBrokenAnywhere) {
  const std::string text(kText);
  for (std::size_t width = 7; width < 100; ++width) {
    std::string broken;
    for (std::size_t i = 0; i < text.size(); i += width) broken += text.substr(i, width) + "\r\n";
    const auto message = parse_pytorch_message(broken);
    ASSERT_TRUE(message) << message.error();
    expect_text(*message);
  }
}

TEST(ParsePyTorchMessage, MakesAnAccountThatAddsUp) {
  const Account account = account_of(*parse_pytorch_message(kText));
  EXPECT_EQ(account.sum(), account.total_bytes);
  EXPECT_EQ(account.total_bytes, gib(23.65));
  EXPECT_EQ(account.live(), gib(17.10));
  EXPECT_EQ(account.cached_hard_bytes, gib(2.84));
  EXPECT_EQ(account.other_processes_bytes, 2_GiB);
  EXPECT_EQ(explain(account).verdict, Verdict::kFragmentation);
}

TEST(ParsePyTorchMessage, ReadsOldReleases) {
  const auto message = parse_pytorch_message(
      "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total "
      "capacity; 6.84 GiB already allocated; 15.31 MiB free; 6.94 GiB reserved in total by PyTorch)"
      " If reserved memory is >> allocated memory try setting max_split_size_mb");
  ASSERT_TRUE(message) << message.error();
  EXPECT_EQ(message->asked_bytes, 20_MiB);
  EXPECT_EQ(message->total_bytes, gib(7.93));
  EXPECT_EQ(message->allocated_bytes, gib(6.84));
  EXPECT_EQ(message->unallocated_bytes, gib(6.94) - gib(6.84));
  EXPECT_EQ(explain(account_of(*message)).verdict, Verdict::kFragmentation);
}

TEST(ParsePyTorchMessage, ReadsTheReleaseThatMisspeltIt) {
  const auto message = parse_pytorch_message(
      "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacty of 39.39 GiB of "
      "which 10.69 MiB is free. Process 12 has 17179869184.00 GiB memory in use. Process 13 has "
      "39.37 GiB memory in use. Of the allocated memory 38.00 GiB is allocated by PyTorch, and "
      "100.00 MiB is reserved by PyTorch but unallocated.");
  ASSERT_TRUE(message) << message.error();
  EXPECT_EQ(message->total_bytes, gib(39.39));
  ASSERT_EQ(message->other_processes.size(), 1U);  // one number was nonsense
  const Account account = account_of(*message);
  EXPECT_EQ(account.sum(), account.total_bytes);
  EXPECT_EQ(explain(account).verdict, Verdict::kShortage);
}

TEST(ParsePyTorchMessage, TakesTheLastOfSeveral) {
  const auto message = parse_pytorch_message(
      "CUDA out of memory. Tried to allocate 1.00 GiB. caught\n" + std::string(kText));
  ASSERT_TRUE(message) << message.error();
  EXPECT_EQ(message->messages, 2U);
  expect_text(*message);
}

TEST(ParsePyTorchMessage, ReadsWhatWeWrite) {
  std::mt19937_64 random(11);
  const auto below = [&](std::uint64_t most) { return random() % most; };
  for (int i = 0; i < 500; ++i) {
    Account account{.device = {.kind = device::DeviceKind::kCuda, .index = static_cast<int>(i % 8)},
                    .total_bytes = 1_GiB + below(80_GiB)};
    account.live_bytes[0] = below(account.total_bytes / 2);
    account.cached_hard_bytes = below(account.total_bytes / 8);
    account.free_bytes = below(account.total_bytes / 8);
    account.asked_bytes = account.segment_asked_bytes = 1 + below(4_GiB);
    if (i % 2 == 0) account.limit_bytes = below(account.total_bytes);
    if (i % 3 == 0) {
      account.processes = {
          {.pid = 7, .used_bytes = below(1_GiB), .name = {}},
          {.pid = 8, .used_bytes = account.reserved(), .name = {}, .is_self = true}};
    }
    PyTorchMessageOptions options{.version = {2, 9 + i % 7}};
    if (i % 5 == 0) options.private_cached_bytes = 1 + below(1_MiB);
    const auto message = parse_pytorch_message(pytorch_message(account, options));
    ASSERT_TRUE(message) << message.error();
    const auto same = [](std::uint64_t read, std::uint64_t written) {
      const double unit = written <= 1_KiB   ? 0
                          : written <= 1_MiB ? 0x1p10
                          : written <= 1_GiB ? 0x1p20
                                             : 0x1p30;
      EXPECT_NEAR(static_cast<double>(read), static_cast<double>(written), 0.005 * unit + 1);
    };
    same(message->asked_bytes, account.segment_asked_bytes);
    EXPECT_EQ(message->device, account.device.index);
    same(message->total_bytes.value(), account.total_bytes);
    same(message->free_bytes.value(), account.free_bytes);
    EXPECT_EQ(message->limit_bytes.has_value(), account.limit_bytes.has_value());
    if (account.limit_bytes) same(*message->limit_bytes, *account.limit_bytes);
    EXPECT_EQ(message->other_processes.size(), account.processes.empty() ? 0U : 1U);
    same(message->allocated_bytes.value(), account.live() + options.private_cached_bytes);
    EXPECT_EQ(message->private_pool_bytes.has_value(), options.private_cached_bytes > 0);
    const Account back = account_of(*message);
    EXPECT_EQ(back.sum(), back.total_bytes);
  }
}

TEST(ParsePyTorchMessage, ReadsTheOtherKinds) {
  const auto rejected = parse_pytorch_message(pytorch_rejection_message(3_GiB));
  ASSERT_TRUE(rejected) << rejected.error();
  EXPECT_TRUE(rejected->is_rejection);
  EXPECT_EQ(rejected->asked_bytes, 3_GiB);
  const auto absurd = parse_pytorch_message(pytorch_absurd_size_message());
  ASSERT_TRUE(absurd) << absurd.error();
  EXPECT_TRUE(absurd->is_absurd);
}

TEST(ParsePyTorchMessage, RefusesAnythingElse) {
  for (const char* text : {"",
                           "hello",
                           "Segmentation fault",
                           "CUDA out of memory.",
                           "CUDA out of memory. Tried to allocate lots"}) {
    const auto message = parse_pytorch_message(text);
    ASSERT_FALSE(message) << text;
    EXPECT_THAT(message.error(), ::testing::Not(HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace headroom::memory
