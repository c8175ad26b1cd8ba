// The sizes of some cards, as CUDA reports them to PyTorch (totalGlobalMem).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headroom::replay {

struct Card {
  std::string_view name;
  std::uint64_t size_bytes = 0;
};

// Largest first. The H200's size was measured; the others are as drivers of their time report them,
// and differ by some MiB from driver to driver.
[[nodiscard]] std::span<const Card> cards() noexcept;

// A card by its name, as people and drivers write it: `h100`, `H100-80GB`, `RTX 4090`, `4090`,
// `NVIDIA A100-SXM4-40GB`. Nothing for `a100`, of which there are two.
[[nodiscard]] std::optional<Card> find_card(std::string_view text);

// No card is smaller: a bare `24` is meant as gigabytes, and is not taken for bytes.
inline constexpr std::uint64_t kLeastCardBytes = std::uint64_t{1} << 20U;

// A name as above, or a size such as `24GiB`.
[[nodiscard]] std::optional<std::uint64_t> parse_card(std::string_view text);

// `h200, h100, ...`: what an error lists.
[[nodiscard]] std::string card_names();

// The name of a card of exactly that size.
[[nodiscard]] std::optional<std::string_view> card_name(std::uint64_t size_bytes) noexcept;

}  // namespace headroom::replay
