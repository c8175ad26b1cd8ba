#include "headroom/analysis/category_rules.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "headroom/base/bytes.h"

namespace headroom::analysis {
namespace {

constexpr std::array kRuleKeys{
    std::pair{std::string_view("site:"), CategoryRule::Of::kSite},
    std::pair{std::string_view("stack:"), CategoryRule::Of::kStack},
    std::pair{std::string_view("size:"), CategoryRule::Of::kSize},
    std::pair{std::string_view("annotation:"), CategoryRule::Of::kAnnotation}};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\v\f";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string names_of_categories() {
  std::string out;
  for (std::size_t i = 0; i < memory::kCategoryCount; ++i) {
    if (i != 0) out += ", ";
    out += to_string(static_cast<memory::Category>(i));
  }
  return out;
}

// The first 40 characters, without what a terminal would act on.
std::string quoted(std::string_view text) {
  std::string out(text.substr(0, 40));
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }, '?');
  return text.size() > 40 ? fmt::format("'{}...'", out) : fmt::format("'{}'", out);
}

Result<memory::Category, std::string> parse_category(std::string_view name) {
  for (std::size_t i = 0; i < memory::kCategoryCount; ++i) {
    const auto category = static_cast<memory::Category>(i);
    if (to_string(category) == name) return category;
  }
  return Unexpected(
      fmt::format("{} is no category; there are {}", quoted(name), names_of_categories()));
}

Result<CategoryRule, std::string> parse_rule(std::string_view line) {
  const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
  const auto category = parse_category(line.substr(0, end));
  if (!category) return Unexpected(category.error());
  const std::string_view condition = trimmed(line.substr(end));
  const auto* key = std::ranges::find_if(
      kRuleKeys, [&](const auto& entry) { return condition.starts_with(entry.first); });
  if (key == kRuleKeys.end()) {
    return Unexpected(
        fmt::format("{} after the category; write site:, stack:, size: or annotation: and a value",
                    condition.empty() ? std::string("nothing") : quoted(condition)));
  }
  const std::string_view value = trimmed(condition.substr(key->first.size()));
  if (value.empty()) return Unexpected(fmt::format("'{}' has no value", key->first));
  CategoryRule rule{.category = *category, .of = key->second, .text = std::string(value)};
  if (rule.of == CategoryRule::Of::kSize) {
    const auto size = parse_bytes(value);
    if (!size) return Unexpected(size.error());
    rule.size_bytes = *size;
  }
  return rule;
}

}  // namespace

Result<CategoryRules, RuleError> parse_category_rules(std::string_view text) {
  CategoryRules rules;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.starts_with('#')) continue;
    auto rule = parse_rule(line);
    if (!rule) return Unexpected(RuleError{.line = number, .what = rule.error()});
    rules.all.push_back(std::move(*rule));
  }
  return rules;
}

}  // namespace headroom::analysis
