// How `headroom doctor -` looks: each number of the pasted message in words, the account they make,
// what to do, and what to record for more.
#include <string>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/memory/pytorch_message.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/doctor.h"

namespace headroom::cli {
namespace {

using memory::PyTorchMessage;
using report::Terminal;

class Numbers {
 public:
  explicit Numbers(const Terminal& terminal) : terminal_(terminal) {}

  void add(const std::optional<std::uint64_t>& size, const std::string& meaning) {
    if (!size) return;
    constexpr int kColumn = 16;
    const std::string text = report::wrapped(meaning, kColumn, terminal_.width);
    out_ += fmt::format("  {:>12}  ", memory::pytorch_size(*size)) + text.substr(kColumn);
  }
  [[nodiscard]] const std::string& text() const { return out_; }

 private:
  const Terminal& terminal_;
  std::string out_;
};

// The size in the message is the segment's; the tensor was smaller or as large.
std::string asked_words(std::uint64_t asked) {
  std::string text = "asked of the device. ";
  if (asked == memory::kSmallSegmentBytes) {
    return text +
           "2 MiB is the segment for any request up to 1 MiB: the tensor may be tiny, and "
           "the device is full";
  }
  if (asked == memory::kLargeSegmentBytes) {
    return text +
           "20 MiB is the segment for any request of 1 to 10 MiB: the tensor itself is "
           "between those";
  }
  return text + "The tensor, rounded up to 2 MiB";
}

std::string numbers_text(const PyTorchMessage& message, const Terminal& terminal) {
  Numbers numbers(terminal);
  numbers.add(message.asked_bytes, asked_words(message.asked_bytes));
  numbers.add(message.total_bytes, fmt::format("the memory of GPU {}", message.device));
  numbers.add(message.free_bytes, "free on the card, after PyTorch gave back all it could");
  numbers.add(message.this_process_bytes,
              "held by this process: what PyTorch reserved, the CUDA context, libraries");
  for (const device::ProcessMemory& process : message.other_processes) {
    numbers.add(process.used_bytes, fmt::format("held by process {}, not yours", process.pid));
  }
  numbers.add(message.limit_bytes,
              "allowed: a limit set by set_per_process_memory_fraction or the settings");
  numbers.add(message.allocated_bytes, "allocated: in tensors that are alive, with rounding");
  numbers.add(message.private_pool_bytes,
              "of that, cached in private pools (CUDA graphs), where nobody else can use it");
  numbers.add(message.unallocated_bytes,
              "reserved but unallocated: cached pieces beside live tensors. None was large enough, "
              "and none could be given back");
  return numbers.text();
}

std::string record_text() {
  return "\nThe message does not say who holds the memory. To find out, record:\n\n"
         "    torch.cuda.memory._record_memory_history(max_entries=1_000_000)\n"
         "    ...                         # the program, in try: ... finally:\n"
         "    torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")\n\n";
}

std::string rejection_text(const PyTorchMessage& message, const Terminal& terminal) {
  return report::wrapped(
      fmt::format(
          "shortage: {} were refused before anything was tried, because they would pass "
          "per_process_memory_fraction (throw_on_cudamalloc_oom is set). The message has no "
          "other number. Raise the fraction, or ask for less.",
          format_bytes(message.asked_bytes)),
      0,
      terminal.width);
}

}  // namespace

std::string draw_message(const PyTorchMessage& message, const Context& context) {
  const Terminal& terminal = context.out;
  const std::string next = context.next("doctor snapshot.pickle", "who holds it, and what helps");
  if (message.is_absurd) {
    return report::wrapped(
        "More than 1 EiB was asked for: no card has that. A size was computed wrongly, most often "
        "from a negative or uninitialised number.",
        0,
        terminal.width);
  }
  if (message.is_rejection) return rejection_text(message, terminal) + record_text() + next;
  std::string out;
  if (message.messages > 1) {
    out += fmt::format("There are {} messages; this is about the last.\n\n", message.messages);
  }
  out += "What the numbers mean (each is rounded to two decimals)\n" +
         numbers_text(message, terminal) + "\n";
  return out + memory::to_text(account_of(message)) + record_text() + next;
}

}  // namespace headroom::cli
