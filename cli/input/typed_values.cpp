#include "cli/input/typed_values.h"

#include <algorithm>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/base/suggest.h"
#include "headroom/replay/cards.h"
#include "headroom/report/table.h"

namespace headroom::cli {
namespace {

constexpr std::uint64_t kLeastLimitBytes = 1_MiB;

// `24` was meant as 24GiB and `16384` as 16384MiB; nobody means `0.5KiB` or 900000 as anything
// else.
std::string meant_size(const std::string& text, std::uint64_t bytes) {
  const bool has_unit = text.find_first_not_of("0123456789.") != std::string::npos;
  constexpr std::uint64_t kMostGigabytes = 1024;
  constexpr std::uint64_t kMostMegabytes = 262'144;
  if (has_unit || bytes == 0 || bytes > kMostMegabytes) return "";
  return fmt::format("; did you mean {}{}?", text, bytes <= kMostGigabytes ? "GiB" : "MiB");
}

[[noreturn]] void complain_of_little(std::string_view option,
                                     const std::string& text,
                                     std::uint64_t bytes,
                                     std::uint64_t least_bytes) {
  const std::string meant = meant_size(text, bytes);
  throw UsageError(fmt::format("{}: {} is too small, the least is {}{}",
                               option,
                               format_bytes(bytes),
                               format_bytes(least_bytes),
                               meant.empty() ? "; write a size such as 24GiB" : meant));
}

// The known names that are nearest to a mistyped one, the nearest first.
std::vector<std::string> near_cards(std::string_view typed) {
  std::string lower(typed);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  struct Near {
    std::size_t distance = 0;
    std::string name{};
  };
  std::vector<Near> all;
  for (const replay::Card& card : replay::cards()) {
    const bool is_start = !lower.empty() && card.name.starts_with(lower);
    const std::size_t distance = is_start ? 0 : edit_distance(lower, card.name);
    if (distance * 2 <= card.name.size()) {
      all.push_back({distance, std::string(card.name)});
    }
  }
  std::ranges::stable_sort(all, {}, &Near::distance);
  constexpr std::size_t kMostNames = 3;
  std::vector<std::string> names;
  for (const Near& one : all) {
    if (names.size() < kMostNames) names.push_back(one.name);
  }
  return names;
}

[[noreturn]] void complain_of_card(const std::string& text) {
  constexpr std::size_t kLongestShown = 40;
  const std::string shown = text.substr(0, kLongestShown);
  const auto bytes = parse_bytes(text);
  if (bytes) complain_of_little("--card", text, *bytes, kLeastLimitBytes);
  if (text.find("iB?") == std::string::npos && bytes.error().find("iB?") != std::string::npos) {
    throw UsageError(fmt::format("--card: {}", bytes.error()));  // 24GB
  }
  const std::vector<std::string> near = near_cards(shown);
  const std::string meant =
      near.empty() ? "" : fmt::format("did you mean {}? ", fmt::join(near, ", "));
  throw UsageError(
      fmt::format("--card: '{}' is neither a size such as 24GiB nor a known card; {}'--card list' "
                  "names the cards",
                  shown,
                  meant));
}

}  // namespace

std::optional<std::uint64_t> typed_size(const std::string& text,
                                        std::string_view option,
                                        std::uint64_t least_bytes) {
  if (text.empty()) return std::nullopt;
  const auto size = parse_bytes(text);
  if (!size) throw UsageError(fmt::format("{}: {}", option, size.error()));
  if (*size < least_bytes) complain_of_little(option, text, *size, least_bytes);
  return *size;
}

std::optional<std::uint64_t> typed_limit(const std::string& text, std::string_view option) {
  return typed_size(text, option, kLeastLimitBytes);
}

std::optional<TypedCard> typed_card(const std::string& text) {
  if (text.empty()) return std::nullopt;
  if (const auto card = replay::find_card(text)) {
    return TypedCard{std::string(card->name), card->size_bytes};
  }
  const auto size = replay::parse_card(text);
  if (!size) complain_of_card(text);
  return TypedCard{text, *size};
}

std::optional<memory::PyTorchVersion> typed_pytorch(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto version = memory::parse_pytorch_version(text);
  if (!version) throw UsageError(fmt::format("--pytorch: {}", version.error()));
  if (*version > memory::kPyTorch215) {
    throw UsageError(
        fmt::format("--pytorch: the rules of PyTorch {} are not known here, only those up to 2.15; "
                    "2.15 comes nearest",
                    text));
  }
  return *version;
}

void add_limit_option(CLI::App& app, std::string& text, const std::string& help) {
  app.add_option("--limit", text, help)->type_name("SIZE")->group(kOptionsGroup);
}

void add_card_option(CLI::App& app, std::string& text) {
  app.add_option("--card",
                 text,
                 "the card: a name such as h100 or rtx4090, or a size such as 24GiB; --card list "
                 "names them")
      ->type_name("CARD")
      ->group(kOptionsGroup);
}

void add_pytorch_option(CLI::App& app, std::string& text, const std::string& help) {
  app.add_option("--pytorch", text, help)->type_name("VERSION")->group(kOptionsGroup);
}

std::string cards_text(const Context& context) {
  if (context.is_json) {
    nlohmann::ordered_json json;
    json["schema"] = 1;
    json["command"] = "cards";
    json["cards"] = nlohmann::ordered_json::array();
    for (const replay::Card& card : replay::cards()) {
      json["cards"].push_back({{"name", card.name}, {"bytes", card.size_bytes}});
    }
    return json.dump(2) + "\n";
  }
  report::Table table(
      {{"card"}, {"bytes", report::Align::kRight}, {"size", report::Align::kRight}});
  for (const replay::Card& card : replay::cards()) {
    table.add_row(
        {std::string(card.name), format_count(card.size_bytes), format_bytes(card.size_bytes)});
  }
  return table.render(context.out) + "\nOr give any size, such as --card 24GiB.\n";
}

}  // namespace headroom::cli
