// The words for what `headroom/diagnose/oom_message.h` found out: who wrote a message, what each of
// its numbers is, and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "headroom/diagnose/oom_message.h"

namespace headroom::cli {

// `PyTorch 2.5 or later, on CUDA`.
[[nodiscard]] std::string writer_text(const diagnose::OomMessage& message);

// `2.5 or later`, `1.10 to 2.0`, `2.10`; empty where the message does not tell.
[[nodiscard]] std::string version_text(const diagnose::OomMessage& message);

// One sentence without its full stop: the verdict, or that there is none.
[[nodiscard]] std::string verdict_text(const diagnose::OomMessage& message);

struct ExplainedNumber {
  std::uint64_t size_bytes = 0;
  std::string meaning{};
};
[[nodiscard]] std::vector<ExplainedNumber> number_text(const diagnose::OomMessage& message);

[[nodiscard]] std::string remedy_text(const diagnose::OomMessage& message,
                                      const diagnose::MessageRemedy& remedy);

// How to find out more, in the writer's own way; text that is not to be broken.
[[nodiscard]] std::string record_text(const diagnose::OomMessage& message);

}  // namespace headroom::cli
