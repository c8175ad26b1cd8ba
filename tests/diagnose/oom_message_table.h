// Out-of-memory texts as their writers format them, and what each is expected to say (#22).
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

namespace headroom::diagnose::testing {

struct MessageRow {
  const char* name;
  const char* text;
  const char* writer;
  const char* versions = "";  // "1.10-2.0", "2.2-", ""
  std::uint64_t asked = 0;
  const char* verdict = "";  // "" where the numbers do not tell
  const char* own = "";      // "", "named", "maybe" or a pid found by arithmetic
  const char* remedies = "";
};

void PrintTo(const MessageRow& row, std::ostream* out);

// PyTorch's, by version and device.
[[nodiscard]] std::vector<MessageRow> pytorch_messages();
// Of drivers, libraries, other frameworks and the machine.
[[nodiscard]] std::vector<MessageRow> other_messages();
// Of programs that serve models or move data, and of schedulers.
[[nodiscard]] std::vector<MessageRow> inference_messages();
// Of other devices and their runtimes, and of schedulers.
[[nodiscard]] std::vector<MessageRow> device_messages();
// All of them.
[[nodiscard]] std::vector<MessageRow> all_messages();

// As a message has them, rounded to two decimals.
[[nodiscard]] inline std::uint64_t gib(double value) {
  return static_cast<std::uint64_t>(value * 0x1p30 + 0.5);
}
[[nodiscard]] inline std::uint64_t mib(double value) {
  return static_cast<std::uint64_t>(value * 0x1p20 + 0.5);
}

}  // namespace headroom::diagnose::testing
