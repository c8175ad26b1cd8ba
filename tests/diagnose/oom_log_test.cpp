// Whole logs: several messages, several ranks, and texts that are meant to be hard (#22).
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/diagnose/oom_message.h"

namespace headroom::diagnose {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string message_of(const std::string& tried, const std::string& process = {}) {
  return "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " + tried +
         ". GPU 0 has a total capacity of 23.65 GiB of which 12.00 MiB is free. " + process +
         "Of the allocated memory 22.42 GiB is allocated by PyTorch, and 100.00 MiB is reserved by "
         "PyTorch but unallocated.\n";
}

TEST(OomLog, CountsTheSameMessageOnceForAllItsRanks) {
  std::string text;
  for (int rank = 0; rank < 8; ++rank) {
    text += "[rank" + std::to_string(rank) + "]: " + message_of("2.00 GiB");
  }
  const auto log = read_oom_log(text);
  ASSERT_TRUE(log) << log.error();
  EXPECT_EQ(log->count, 8U);
  ASSERT_EQ(log->messages.size(), 1U);
  EXPECT_EQ(log->messages[0].count, 8U);
  EXPECT_EQ(log->messages[0].speakers.size(), 8U);
  EXPECT_EQ(log->messages[0].speakers[3], "rank3");
}

TEST(OomLog, KeepsDistinctMessagesInTheOrderOfTheirLast) {
  const auto log =
      read_oom_log("[rank1]: " + message_of("1.00 GiB") + "[rank2]: " + message_of("2.00 GiB") +
                   "[rank3]: " + message_of("1.00 GiB"));
  ASSERT_TRUE(log) << log.error();
  ASSERT_EQ(log->messages.size(), 2U);
  EXPECT_EQ(log->messages[0].numbers.asked_bytes, 2_GiB);
  EXPECT_EQ(log->messages[1].numbers.asked_bytes, 1_GiB);
  EXPECT_THAT(log->messages[1].speakers, ElementsAre("rank1", "rank3"));
}

// Two ranks whose lines, broken by the same terminal, come in turns.
TEST(OomLog, ReadsWhatEachRankWrote) {
  const auto log = read_oom_log(
      "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "
      "a total\n"
      "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has "
      "a total\n"
      "[rank0]:  capacity of 79.15 GiB of which 1.00 GiB is free. Of the allocated\n"
      "[rank1]:  capacity of 79.15 GiB of which 2.50 GiB is free. Of the allocated\n"
      "[rank0]:  memory 77.10 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch "
      "but unallocated.\n"
      "[rank1]:  memory 70.10 GiB is allocated by PyTorch, and 6.00 GiB is reserved by PyTorch but "
      "unallocated.\n");
  ASSERT_TRUE(log) << log.error();
  ASSERT_EQ(log->messages.size(), 2U);
  EXPECT_EQ(log->messages[0].numbers.asked_bytes, 2_GiB);
  EXPECT_EQ(log->messages[0].numbers.free_bytes, 1_GiB);
  EXPECT_EQ(log->messages[0].verdict, memory::Verdict::kShortage);
  EXPECT_EQ(log->messages[1].numbers.asked_bytes, 3_GiB);
  EXPECT_EQ(log->messages[1].numbers.device, 1);
  EXPECT_EQ(log->messages[1].verdict, memory::Verdict::kFragmentation);
  EXPECT_THAT(log->messages[1].speakers, ElementsAre("rank1"));
}

// The same without names: whose numbers they are cannot be told, so there is no verdict.
TEST(OomLog, DoesNotMixTheNumbersOfTwo) {
  const std::string behind =
      "capacity of 79.15 GiB of which 1.00 GiB is free. Of the allocated memory 77.10 GiB is "
      "allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n";
  const auto log = read_oom_log(
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total\n"
      "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has a total\n" +
      behind + " has a total " + behind);
  ASSERT_TRUE(log) << log.error();
  for (const OomMessage& message : log->messages) EXPECT_FALSE(message.verdict);
}

TEST(OomLog, DropsWhatAMessageLeavesBehindItself) {
  const auto log = read_oom_log("CUDA out of memory, retrying\n" + message_of("1.00 GiB") +
                                "exitcode: -9\nKilled\n");
  ASSERT_TRUE(log) << log.error();
  ASSERT_EQ(log->messages.size(), 1U);
  EXPECT_EQ(log->messages[0].numbers.asked_bytes, 1_GiB);
}

TEST(OomLog, KeepsMessagesOfDifferentWriters) {
  const auto log = read_oom_log("CUBLAS_STATUS_ALLOC_FAILED\n" + message_of("1.00 GiB"));
  ASSERT_TRUE(log) << log.error();
  ASSERT_EQ(log->messages.size(), 2U);
  EXPECT_EQ(log->messages[0].writer, Writer::kCublas);
}

TEST(OomLog, ReadsWhatPowerShellWrote) {
  std::string wide = "\xff\xfe";
  for (const char c : message_of("1.00 GiB")) wide += {c, '\0'};
  const auto log = read_oom_log(wide);
  ASSERT_TRUE(log) << log.error();
  EXPECT_EQ(log->messages[0].numbers.asked_bytes, 1_GiB);
}

TEST(OomLog, NeverOffersToEndAProcessThatMayBeOurs) {
  std::mt19937_64 random(22);
  for (int i = 0; i < 2000; ++i) {
    // A card that holds our process, which the text lists among others, in hundredths of a GiB.
    const auto below = [&](std::uint64_t most) { return static_cast<int>(random() % most); };
    const int allocated = below(4000);
    const int cached = below(1000);
    const int own = allocated + cached + below(100);
    int total = own + below(200);
    const auto in_gib = [](int hundredths) {
      return std::to_string(hundredths / 100) + "." + std::to_string(hundredths / 10 % 10) +
             std::to_string(hundredths % 10) + " GiB";
    };
    std::string processes;
    const int place = below(4);
    for (int p = 0; p < 4; ++p) {
      const int other = below(3000);
      if (p != place) total += other;
      processes += "Process " + std::to_string(100 + p) + " has " +
                   in_gib(p == place ? own : other) + " memory in use. ";
    }
    const auto log = read_oom_log(
        "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of " +
        in_gib(total) + " of which 0 bytes is free. " + processes + "Of the allocated memory " +
        in_gib(allocated) + " is allocated by PyTorch, and " + in_gib(cached) +
        " is reserved by PyTorch but unallocated.");
    ASSERT_TRUE(log) << log.error();
    const OomMessage& message = log->messages[0];
    EXPECT_THAT(message.own_candidates, ::testing::Contains(100U + static_cast<unsigned>(place)));
    const memory::Account account = account_of(message);
    EXPECT_EQ(account.sum(), account.total_bytes);
  }
}

TEST(OomLog, SaysThatAnInternalErrorIsNoProof) {
  const auto log = read_oom_log("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR");
  ASSERT_FALSE(log);
  EXPECT_THAT(log.error(), HasSubstr("alone does not mean out of memory"));
}

// People take these for out of memory, and are told what they are.
TEST(OomLog, SaysWhatANearMissIs) {
  struct Row {
    const char* text;
    const char* says;
  };
  for (const Row& row :
       {Row{"triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: "
            "131072, "
            "Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
            "not about the card's memory"},
        Row{"ptxas error: Entry function 'k' uses too much shared data (0xd000 bytes, 0xc000 max)",
            "not about the card's memory"},
        Row{"RuntimeError: CUDA error: too many resources requested for launch",
            "not about the card's memory"},
        Row{"bfc_allocator.cc:219] Allocator (GPU_0_bfc) ran out of memory trying to allocate "
            "512.00MiB. The caller indicates that this is not a failure, but may mean that there "
            "could be performance gains if more memory were available.",
            "nothing failed"},
        Row{"Allocation of 1207959552 exceeds 10% of free system memory.", "nothing failed"},
        Row{"RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
            "found no algorithm"},
        Row{"InternalError: Dst tensor is not initialized.", "could not copy"},
        Row{"RuntimeError: CUDA error: an illegal memory access was encountered", "not a shortage"},
        Row{"OSError: [Errno 28] No space left on device", "about a disk"},
        Row{"java.lang.OutOfMemoryError: Java heap space", "heap of Java"},
        Row{"FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
            "heap of JavaScript"}}) {
    const auto log = read_oom_log(row.text);
    ASSERT_FALSE(log) << row.text;
    EXPECT_THAT(log.error(), HasSubstr(row.says));
  }
}

// The driver's error inside a library's is that library's; one elsewhere in the log is another.
TEST(OomLog, KeepsTheRuntimesErrorWhereNoLibraryWrapsIt) {
  const std::string far(1000, '.');
  const auto log = read_oom_log("[TRT] Requested amount of GPU memory (1024 bytes) could not be\n" +
                                far + "\nRuntimeError: CUDA error: out of memory\n");
  ASSERT_TRUE(log) << log.error();
  ASSERT_EQ(log->messages.size(), 2U);
  EXPECT_EQ(log->messages[0].writer, Writer::kTensorRt);
  EXPECT_EQ(log->messages[1].writer, Writer::kCudaRuntime);
}

TEST(OomLog, RefusesWhatIsNoMessage) {
  for (const char* text : {"",
                           "\n\n\n",
                           "hello",
                           "Segmentation fault",
                           "ncclUnhandledCudaError: invalid argument",
                           "Killing time",
                           "Free memory on device 0 is fine",
                           "Unable to allocate a port",
                           "using SIGKILL to stop worker 3, as asked",
                           "INFO: out of memory handling is on",
                           "MemoryError handling: passed",
                           "Pod oom-demo is Running",
                           "loss 0.137 exit",
                           "failed to allocate CUDA stream",
                           "error: Out Of Memory Killer is disabled",
                           R"("State": {"OOMKilled": false, "ExitCode": 1})",
                           "memory allocation of buffers is lazy",
                           "# CUDA may run out of memory here",
                           "see our docs about CUDA out of memory errors and how "
                           "torch.OutOfMemoryError works; all tests passed",
                           "Attempting to allocate workers",
                           "torch.cuda.OutOfMemoryError is caught in train.py:12"}) {
    const auto log = read_oom_log(text);
    ASSERT_FALSE(log) << text;
    EXPECT_THAT(log.error(), ::testing::Not(HasSubstr("\n")));
  }
}

// A message that a logger broke into lines, each behind a time, at every width that it may have.
TEST(OomLog, JoinsLinesBehindTimes) {
  std::string whole = message_of("2.00 GiB", "Process 4711 has 1.00 GiB memory in use. ");
  whole.pop_back();
  for (const std::string prefix : {"2026-03-01T12:00:00.123Z ",
                                   "2026-03-01T12:00:00.123Z node7 ",
                                   "2026-03-01 12:00:00,123 ip-10-0-0-2 python3[4711]: ",
                                   "Mar  1 12:00:00 node7 python3[4711]: ",
                                   "2026-03-01T12:00:00.123456789Z stderr F ",
                                   "2026-03-01 12:00:00.111 | ERROR    | __main__:main:12 - "}) {
    for (std::size_t width = 30; width <= 130; ++width) {
      std::string text;
      for (std::size_t i = 0; i < whole.size(); i += width) {
        text += prefix + whole.substr(i, width) + "\n";
      }
      const auto log = read_oom_log(text);
      ASSERT_TRUE(log) << text;
      ASSERT_EQ(log->messages.size(), 1U) << text;
      const memory::PyTorchMessage& numbers = log->messages[0].numbers;
      EXPECT_EQ(numbers.total_bytes.value_or(0), static_cast<std::uint64_t>(23.65 * 0x1p30 + 0.5))
          << text;
      EXPECT_EQ(numbers.unallocated_bytes.value_or(0), 100_MiB) << text;
      EXPECT_EQ(numbers.other_processes.size(), 1U) << text;
    }
  }
}

TEST(OomLog, SaysWhichPartOfATextIsMissing) {
  const std::string whole = message_of("2.00 GiB");
  const auto part = [&](const char* last) {
    const auto log = read_oom_log(whole.substr(0, whole.find(last) + std::string(last).size()));
    EXPECT_TRUE(log);
    return log ? std::string(log->messages[0].missing_part) : "";
  };
  EXPECT_EQ(part("total capacity"), "total capacity");
  EXPECT_EQ(part("23.65 GiB"), "is free");
  EXPECT_EQ(part("is free."), "is allocated by PyTorch");
  EXPECT_EQ(part("is allocated by PyTorch"), "is reserved by PyTorch but unallocated");
  EXPECT_EQ(part("but unallocated."), "");
}

// What is set already is not advised; what a message or a person only recommends is not set.
TEST(OomLog, SeesTheSettingsOfTheProgram) {
  struct Row {
    const char* text;
    bool sets_expandable;
    bool sets_split;
  };
  for (const Row& row :
       {Row{"+ export PYTORCH_ALLOC_CONF=expandable_segments:True\n", true, false},
        Row{"$ PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 torchrun train.py\n", false, true},
        Row{"PYTORCH_CUDA_ALLOC_CONF='max_split_size_mb:64,expandable_segments:True' ./a\n",
            true,
            true},
        Row{"os.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = \"expandable_segments:True\"\n",
            true,
            false},
        Row{"set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n", true, false},
        Row{"ENV PYTORCH_HIP_ALLOC_CONF expandable_segments:True\n", true, false},
        Row{"- name: PYTORCH_CUDA_ALLOC_CONF\n  value: \"expandable_segments:True\"\n",
            true,
            false},
        Row{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\n", false, false},
        Row{"unset PYTORCH_CUDA_ALLOC_CONF\n", false, false},
        Row{"please set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n", false, false},
        Row{"large try setting\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid it\n",
            false,
            false}}) {
    const auto log = read_oom_log(row.text + message_of("2.00 GiB"));
    ASSERT_TRUE(log) << log.error();
    EXPECT_EQ(log->messages[0].sets_expandable_segments, row.sets_expandable) << row.text;
    EXPECT_EQ(log->messages[0].sets_max_split_size, row.sets_split) << row.text;
  }
}

TEST(OomLog, TakesTheReleaseThatTheReaderNames) {
  const std::string text =
      "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.73 GiB total capacity; 6.00 GiB "
      "already allocated; 100.00 MiB free; 9.00 GiB reserved in total by PyTorch)";
  const auto kinds = [&](const std::optional<memory::PyTorchVersion>& version) {
    const auto log = read_oom_log(text, version);
    std::vector<RemedyKind> out;
    for (const MessageRemedy& remedy : log.value().messages[0].remedies) out.push_back(remedy.kind);
    return out;
  };
  EXPECT_THAT(kinds(std::nullopt), ElementsAre(RemedyKind::kUpgradePyTorch));
  EXPECT_THAT(kinds(memory::PyTorchVersion{1, 13}),
              ElementsAre(RemedyKind::kMaxSplitSize, RemedyKind::kUpgradePyTorch));
  const auto log = read_oom_log(text);
  EXPECT_TRUE(may_be_of(log->messages[0], {1, 13}));
  EXPECT_FALSE(may_be_of(log->messages[0], {2, 5}));
}

TEST(OomLog, ReadsSizesThatNoMachineHas) {
  const std::string huge(30, '9');
  for (const std::string& size :
       {huge + " GiB", std::string("17179869184.00 GiB"), huge + " bytes"}) {
    const auto log = read_oom_log(message_of(size, "Process 1 has " + size + " memory in use. "));
    ASSERT_TRUE(log) << log.error();
    const memory::Account account = account_of(log->messages[0]);
    EXPECT_EQ(account.sum(), account.total_bytes);
  }
  EXPECT_FALSE(read_oom_log("Tried to allocate nan GiB (GPU 0; inf GiB total capacity;"));
}

TEST(OomLog, ReadsAnyBytes) {
  std::mt19937_64 random(7);
  const std::string text =
      "[rank0]: " + message_of("1.00 GiB") + "Out of memory: Killed process " +
      "12 (python) total-vm:1kB, anon-rss:1kB\nMPS backend out of memory (MPS "
      "allocated: 1 GB, max allowed: 2 GB). Tried to allocate 3 GB\nOOM when "
      "allocating tensor with shape[4,4] and type float\nFree memory on device "
      "(1/2 GiB) on startup is less than x utilization (0.9, 1 GiB)\n";
  for (int i = 0; i < 3000; ++i) {
    std::string broken = text;
    for (int k = 0; k < 6; ++k) {
      const std::size_t at = random() % broken.size();
      if (k % 2 == 0) {
        broken[at] = static_cast<char>(random());
      } else {
        broken.erase(at, random() % 9);
      }
    }
    const auto log = read_oom_log(broken);
    if (!log) continue;
    for (const OomMessage& message : log->messages) {
      const memory::Account account = account_of(message);
      EXPECT_EQ(account.sum(), account.total_bytes);
    }
  }
}

TEST(OomLog, ReadsAHundredThousandMessages) {
  std::string text;
  for (int i = 0; i < 100000; ++i) {
    text += "[rank" + std::to_string(i % 1000) +
            "]: " + message_of(std::to_string(i % 10 + 1) + ".00 GiB");
  }
  const auto log = read_oom_log(text);
  ASSERT_TRUE(log) << log.error();
  EXPECT_EQ(log->count, 100000U);
  EXPECT_EQ(log->messages.size(), 10U);
}

}  // namespace
}  // namespace headroom::diagnose
