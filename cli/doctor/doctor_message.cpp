// How `headroom doctor -` looks: who wrote the pasted message, each of its numbers in words, the
// account they make, what to do, and what to record for more.
#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/memory/pytorch_message.h"
#include "headroom/report/table.h"
#include "headroom/report/text.h"

#include "cli/doctor/doctor.h"
#include "cli/doctor/message_text.h"

namespace headroom::cli {
namespace {

using diagnose::MessageRemedy;
using diagnose::OomMessage;
using report::Terminal;

constexpr std::size_t kMessagesShown = 4;

std::string numbers_text(const OomMessage& message, const Terminal& terminal) {
  constexpr int kColumn = 16;
  const std::vector<ExplainedNumber> numbers = number_text(message);
  if (numbers.empty()) return {};
  std::string out = "What the numbers mean (each is rounded to two decimals)\n";
  for (const ExplainedNumber& number : numbers) {
    const std::string text = report::wrapped(number.meaning, kColumn, terminal.width);
    out +=
        fmt::format("  {:>12}  ", memory::pytorch_size(number.size_bytes)) + text.substr(kColumn);
  }
  return out + "\n";
}

// `8 times, by rank0, rank1, rank2 and 5 more`.
std::string origin_text(const OomMessage& message, const Terminal& terminal) {
  std::string text = "Written by " + writer_text(message);
  if (message.count > 1) text += fmt::format("; {} times", message.count);
  constexpr std::size_t kNamed = 8;
  const std::size_t named = std::min(message.speakers.size(), kNamed);
  for (std::size_t i = 0; i < named; ++i) {
    text += (i == 0 ? ", by " : ", ") + report::printable(message.speakers[i]);
  }
  if (message.speakers.size() > named) {
    text += fmt::format(" and {} more", message.speakers.size() - named);
  }
  return report::wrapped(text + ".", 0, terminal.width) + "\n";
}

std::string remedies_text(const OomMessage& message, const Terminal& terminal) {
  std::string out;
  constexpr int kIndent = 5;
  for (std::size_t i = 0; i < message.remedies.size(); ++i) {
    const std::string text =
        report::wrapped(remedy_text(message, message.remedies[i]), kIndent, terminal.width);
    out += fmt::format("{:>3}. ", i + 1) + text.substr(kIndent);
  }
  return out;
}

std::string account_text(const OomMessage& message) {
  const memory::Account account = account_of(message);
  return memory::to_text(account, message_explanation(message));
}

std::string notes_text(const OomMessage& message, const Terminal& terminal) {
  std::string out;
  const auto add = [&](const std::string& sentence) {
    out += report::wrapped(sentence, 0, terminal.width) + "\n";
  };
  if (message.exceeds_card) {
    add("More is reserved than the card has: either the driver lends main memory, as it does on "
        "Windows, which is slow, or the numbers were taken at different moments.");
  }
  if (message.sets_expandable_segments) {
    add("The text sets expandable_segments:True already, so that is not among the remedies.");
  }
  return out;
}

// The verdict follows from an account that adds up, and not from two of its numbers.
bool has_whole_account(const OomMessage& message) {
  const memory::PyTorchMessage& numbers = message.numbers;
  return is_pytorch_device(message.writer) && message.verdict && !message.is_cuda_pool &&
         numbers.free_bytes && numbers.allocated_bytes && numbers.unallocated_bytes;
}

std::string one_text(const OomMessage& message, const Terminal& terminal) {
  std::string out = origin_text(message, terminal) + numbers_text(message, terminal) +
                    notes_text(message, terminal);
  const bool is_cuda = message.writer == diagnose::Writer::kPyTorchCuda ||
                       message.writer == diagnose::Writer::kPyTorchHip;  // which calls it cuda too
  const bool has_account = is_cuda && has_whole_account(message) && !message.numbers.is_rejection;
  if (has_account) return out + account_text(message);
  return out + report::wrapped(message_explanation(message).summary, 0, terminal.width) +
         remedies_text(message, terminal);
}

std::string rejection_text(const OomMessage& message) {
  return fmt::format(
      "shortage: a request of {} was refused at once, because it would exceed "
      "per_process_memory_fraction (throw_on_cudamalloc_oom is set). The message has no other "
      "number",
      format_bytes(message.numbers.asked_bytes));
}

}  // namespace

memory::Explanation message_explanation(const OomMessage& message) {
  memory::Explanation out;
  if (message.numbers.is_absurd) {
    out.summary = "More than 1 EiB was requested: no card has that much";
  } else if (message.numbers.is_rejection) {
    out.summary = rejection_text(message);
  } else if (has_whole_account(message)) {
    out = explain(account_of(message));
    if (message.is_larger_than_card) out.summary = verdict_text(message);
    out.remedies.clear();
  } else {
    out.summary = verdict_text(message);
  }
  for (const MessageRemedy& remedy : message.remedies) {
    out.remedies.push_back({.action = remedy_text(message, remedy),
                            .gain_bytes = remedy.gain_bytes,
                            .is_enough = remedy.is_enough,
                            .is_unmeasured = remedy.gain_bytes == 0});
  }
  return out;
}

std::string draw_messages(const diagnose::OomLog& log, const Context& context) {
  const Terminal& terminal = context.out;
  std::string out;
  const std::size_t distinct = log.messages.size();
  const std::size_t shown = std::min(distinct, kMessagesShown);
  if (distinct > 1) {
    out += fmt::format(
        "The log has {} out-of-memory messages, {} of them different; ", log.count, distinct);
    out += shown == distinct ? "each is explained.\n\n"
                             : fmt::format("the last {} are explained.\n\n", shown);
  }
  for (std::size_t i = distinct - shown; i < distinct; ++i) {
    if (distinct > 1) out += fmt::format("--- {} of {} ---\n", i + 1, distinct);
    out += one_text(log.messages[i], terminal);
    if (i + 1 < distinct) out += "\n";
  }
  const std::string record = record_text(log.messages.back());
  const bool has_snapshot = record.find("_dump_snapshot") != std::string::npos;
  out += record;
  if (has_snapshot) out += context.next("doctor snapshot.pickle", "who holds it, and what to do");
  return out;
}

}  // namespace headroom::cli
