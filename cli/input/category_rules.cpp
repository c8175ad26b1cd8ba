#include "cli/input/category_rules.h"

#include <string_view>

#include <fmt/format.h>

#include "headroom/base/error.h"
#include "headroom/base/input_file.h"
#include "headroom/report/text.h"

namespace headroom::cli {
namespace {

std::string rules_text(const std::string& path) {
  try {
    const auto bytes = headroom::read_input(path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", report::printable(path), error.what()));
  }
}

}  // namespace

analysis::CategoryRules read_category_rules(const std::string& path) {
  auto rules = analysis::parse_category_rules(rules_text(path));
  if (rules) return std::move(*rules);
  throw Error(fmt::format("{}: line {}: {}",
                          report::printable(path),
                          rules.error().line,
                          report::printable(rules.error().what)));
}

}  // namespace headroom::cli
