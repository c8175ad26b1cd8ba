// The values of options that several commands take: sizes, limits, cards and releases of PyTorch.
// Each function throws UsageError, with what was typed, what is wrong with it and what to type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/memory/config.h"

#include "cli/command.h"

namespace headroom::cli {

// Unset where nothing was typed. Less than `least_bytes` is refused.
[[nodiscard]] std::optional<std::uint64_t> typed_size(const std::string& text,
                                                      std::string_view option,
                                                      std::uint64_t least_bytes = 0);

// The limit of an allocator. Nothing runs in less than 1 MiB: `24` was meant as 24GiB.
[[nodiscard]] std::optional<std::uint64_t> typed_limit(const std::string& text,
                                                       std::string_view option = "--limit");

// A card's name in any case, or its size. `list` is answered before a command runs: cards_text().
struct TypedCard {
  std::string name{};  // as the table has it; as typed for a size
  std::uint64_t size_bytes = 0;
};
[[nodiscard]] std::optional<TypedCard> typed_card(const std::string& text);

[[nodiscard]] std::optional<memory::PyTorchVersion> typed_pytorch(const std::string& text);

// The options whose text the functions above read. Some commands say in `help` what the value is
// for there.
void add_limit_option(CLI::App& app, std::string& text, const std::string& help);
void add_card_option(CLI::App& app, std::string& text);
void add_pytorch_option(CLI::App& app, std::string& text, const std::string& help);

// The text of `--card list`: the cards that have a name, with their sizes.
[[nodiscard]] std::string cards_text(const Context& context);

}  // namespace headroom::cli
