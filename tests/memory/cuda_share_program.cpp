// One of two processes on a card, each with its fraction of it; run by cuda_share_test. It takes a
// block, waits until the other has one too, and prints what its account says and what it is told
// when it asks for more than its share.
//
//   cuda_share_program first|second FOLDER      the folder is where the two leave word
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "headroom/base/bytes.h"
#include "headroom/memory.h"

namespace {

using namespace headroom;  // NOLINT(google-build-using-namespace): a program of one file

constexpr double kFraction = 0.05;
constexpr std::uint64_t kHeld = 600_MiB;
constexpr const char* kCard = "cuda:0";

class Party {
 public:
  Party(std::filesystem::path folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}

  void say(const std::string& word) const { std::ofstream(folder_ / (name_ + "-" + word)); }
  static void wait_for(const Party& other, const std::string& word) {
    const auto file = other.folder_ / (other.name_ + "-" + word);
    for (int i = 0; i < 6'000; ++i) {
      if (std::filesystem::exists(file)) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    throw std::runtime_error("the other process does not come: " + file.string());
  }

 private:
  std::filesystem::path folder_;
  std::string name_;
};

void print(const char* key, std::uint64_t value) {
  std::printf("%s %llu\n", key, static_cast<unsigned long long>(value));
}

void print_account(const memory::Account& account) {
  print("reserved", account.reserved());
  print("limit", account.limit_bytes.value_or(0));
  print("outside", account.outside_bytes);
  print("others", account.other_processes_bytes);
  print("free", account.free_bytes);
  print("sum", account.sum());
  print("total", account.total_bytes);
  for (const device::ProcessMemory& process : account.processes) {
    std::fprintf(stderr,
                 "process %lld '%s'%s: %s\n",
                 static_cast<long long>(process.pid),
                 process.name.c_str(),
                 process.is_self ? " (this one)" : "",
                 format_bytes(process.used_bytes).c_str());
  }
}

// More than the share leaves, and far less than the card has.
void ask_for_too_much(memory::Allocator& allocator) {
  const auto failed = allocator.try_allocate(allocator.limit().value());
  print("refused", failed ? 0 : 1);
  if (failed || failed.error().report == nullptr) return;
  print("missing", failed.error().report->explanation.missing_bytes);
  std::fprintf(stderr, "%s\n", failed.error().report->text.c_str());
  std::printf("summary %s\n", failed.error().report->explanation.summary.c_str());
}

void share(const Party& self, const Party& other, bool is_first) {
  // One after the other, so that each can see what its own context takes.
  if (!is_first) Party::wait_for(other, "holds");
  set_per_process_memory_fraction(kFraction, kCard);
  memory::Allocator& card = allocator(kCard);
  const auto block = card.allocate(kHeld);
  self.say("holds");
  Party::wait_for(other, "holds");
  print_account(card.account());
  ask_for_too_much(card);
  self.say("looked");
  Party::wait_for(other, "looked");
  card.free(block);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count != 3) throw std::runtime_error("usage: cuda_share_program first|second FOLDER");
    const bool is_first = std::string(arguments[1]) == "first";
    const Party first(arguments[2], "first");
    const Party second(arguments[2], "second");
    is_first ? share(first, second, true) : share(second, first, false);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
