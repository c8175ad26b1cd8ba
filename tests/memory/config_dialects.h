// The two dialects of settings by short names, for the tests of headroom/memory/config.h.
#pragma once

#include <string>
#include <string_view>

#include "headroom/memory/config.h"

namespace headroom::memory::testing {

inline Result<ParsedConfig, std::string> strict(std::string_view text,
                                                PyTorchVersion version = kPyTorch215) {
  return parse_config(text, {.dialect = ConfigDialect::kStrict, .version = version});
}

inline Result<ParsedConfig, std::string> pytorch(std::string_view text,
                                                 PyTorchVersion version = kPyTorch215) {
  return parse_config(text, {.dialect = ConfigDialect::kPyTorch, .version = version});
}

inline std::string error_of(const Result<ParsedConfig, std::string>& result) {
  return result ? "(no error)" : result.error();
}

}  // namespace headroom::memory::testing
