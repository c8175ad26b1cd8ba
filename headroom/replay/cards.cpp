#include "headroom/replay/cards.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::replay {
namespace {

constexpr std::array kCards{
    Card{"b200", 191'496'192'000},
    Card{"h200", 150'109'880'320},
    Card{"gh200", 101'466'570'752},
    Card{"h100", 84'942'979'072},
    Card{"a100-80", 84'987'740'160},
    Card{"l40s", 47'696'379'904},
    Card{"a6000", 50'962'169'856},
    Card{"a100-40", 42'505'273'344},
    Card{"v100-32", 34'089'730'048},
    Card{"rtx5090", 33'661'911'040},
    Card{"rtx3090", 25'438'126'080},
    Card{"rtx4090", 25'393'692'672},
    Card{"l4", 23'609'475'072},
    Card{"a10g", 23'609'475'072},
    Card{"v100-16", 16'945'512'448},
    Card{"t4", 15'843'721'216},
    Card{"rtx3060", 12'622'561'280},
    Card{"rtx3080", 10'503'192'576},
};

constexpr bool is_card_digit(char c) { return c >= '0' && c <= '9'; }

// Letters and digits in lower case, in words.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool is_letter = lower >= 'a' && lower <= 'z';
    if (is_letter || is_card_digit(lower)) {
      words.back() += lower;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// The parts of a driver's name beside the card's: the maker, the line, the socket.
bool says_nothing(std::string_view word) {
  constexpr std::array kWords{"nvidia", "tesla", "geforce", "quadro", "pcie", "gpu", "rtx"};
  return std::ranges::find(kWords, word) != kWords.end() || word.starts_with("sxm") ||
         word.starts_with("hbm");
}

// `80gb`, `80gib`, `80g` and `80` are gigabytes behind a name.
std::string_view without_unit(std::string_view word) {
  if (word.empty() || !is_card_digit(word.front())) return word;
  for (const std::string_view unit : {"gib", "gb", "g"}) {
    if (word.ends_with(unit)) return word.substr(0, word.size() - unit.size());
  }
  return word;
}

// The name without what says nothing: `NVIDIA A100-SXM4-40GB` and `a100-40` are `a10040`.
std::string plain_name(std::string_view text) {
  std::string name;
  for (const std::string& word : words_of(text)) {
    if (says_nothing(word)) continue;
    name += without_unit(word);
  }
  return name.starts_with("rtx") ? name.substr(3) : name;
}

// Whether what stands behind a name is the card's size in gigabytes, as the maker counts them: `80`
// of an H100, which has 79.1 GiB.
bool is_its_size(std::string_view digits, const Card& card) {
  std::uint64_t gigabytes = 0;
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, gigabytes);
  if (read.ec != std::errc{} || read.ptr != end) return false;
  const double gib = static_cast<double>(card.size_bytes) / static_cast<double>(1_GiB);
  return std::abs(static_cast<double>(gigabytes) - gib) <= gib / 10;
}

}  // namespace

std::span<const Card> cards() noexcept { return kCards; }

std::optional<Card> find_card(std::string_view text) {
  const std::string typed = plain_name(text);
  if (typed.empty()) return std::nullopt;
  for (const Card& card : kCards) {
    if (plain_name(card.name) == typed) return card;
  }
  for (const Card& card : kCards) {
    const std::string name = plain_name(card.name);
    if (typed.starts_with(name) && is_its_size(std::string_view(typed).substr(name.size()), card)) {
      return card;
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_card(std::string_view text) {
  if (const auto card = find_card(text)) return card->size_bytes;
  const auto parsed = parse_bytes(text);
  if (!parsed || *parsed < kLeastCardBytes) return std::nullopt;
  return *parsed;
}

std::string card_names() {
  std::string names;
  for (const Card& card : kCards) {
    if (!names.empty()) names += ", ";
    names += card.name;
  }
  return names;
}

std::optional<std::string_view> card_name(std::uint64_t size_bytes) noexcept {
  const auto found = std::ranges::find(kCards, size_bytes, &Card::size_bytes);
  if (found == kCards.end()) return std::nullopt;
  return found->name;
}

}  // namespace headroom::replay
