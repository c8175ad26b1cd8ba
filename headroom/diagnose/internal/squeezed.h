// A log without what terminals, loggers and launchers put into it, so that a message can be found
// wherever it was broken: no blanks, no line breaks, no colours, no prefixes of lines. What ranks
// wrote in turns stands in order, one rank after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::diagnose::internal {

struct Squeezed {
  // From here on the text was written by `label`: `rank3`, `EngineCore pid=518`; empty where the
  // line does not say.
  struct Speaker {
    std::size_t at = 0;
    std::string label{};
  };
  // A line that is a whole word, which is lost among the others: `Killed`, `MemoryError`.
  struct Word {
    std::size_t at = 0;
    std::string_view word{};
  };
  // Where a line of the log begins in the text.
  struct Place {
    std::size_t at = 0;
    std::size_t line = 0;
  };
  // A part of the text by one speaker, which no other's lines interrupt.
  struct Part {
    std::size_t from = 0;
    std::size_t to = 0;
  };

  std::string text{};
  std::vector<Speaker> speakers{};
  std::vector<Word> words{};
  std::vector<Place> lines{};
  std::vector<std::size_t> parts{};  // where each begins

  [[nodiscard]] std::string_view speaker_at(std::size_t at) const;
  [[nodiscard]] std::size_t line_at(std::size_t at) const;
  [[nodiscard]] Part part_at(std::size_t at) const;
};

[[nodiscard]] Squeezed squeeze(std::string_view log);

// A size and where it ends: `2.00GiB`, `4,770,354,232bytes`, `10104307200B`, `20.36G`. Powers of
// 1024 whatever the unit is called: no writer here means powers of ten. At most 1 EiB.
struct SizeText {
  std::uint64_t bytes = 0;
  std::size_t length = 0;
};
[[nodiscard]] std::optional<SizeText> leading_size(std::string_view text);

[[nodiscard]] std::optional<std::uint64_t> leading_number(std::string_view text);

[[nodiscard]] bool has(std::string_view text, std::string_view words);
[[nodiscard]] std::string_view last_of(std::string_view text, std::size_t count);

// The number right behind the words, where they are in the text.
[[nodiscard]] std::optional<std::uint64_t> number_behind(std::string_view text,
                                                         std::string_view words);

// The size right behind the words, where they are in the text.
[[nodiscard]] std::optional<std::uint64_t> size_behind(std::string_view text,
                                                       std::string_view words);

}  // namespace headroom::diagnose::internal
