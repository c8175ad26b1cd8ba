// A file of category rules that was named on the command line.
#pragma once

#include <string>

#include "headroom/analysis/category_rules.h"

namespace headroom::cli {

// Throws Error: `FILE: line 3: 'wieght' is no category; there are ...`.
[[nodiscard]] analysis::CategoryRules read_category_rules(const std::string& path);

}  // namespace headroom::cli
