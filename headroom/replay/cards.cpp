#include "headroom/replay/cards.h"

#include <algorithm>
#include <array>

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

}  // namespace

std::span<const Card> cards() noexcept { return kCards; }

std::optional<std::uint64_t> parse_card(std::string_view text) {
  const auto found = std::ranges::find(kCards, text, &Card::name);
  if (found != kCards.end()) return found->size_bytes;
  const auto parsed = parse_bytes(text);
  if (!parsed || *parsed == 0) return std::nullopt;
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
