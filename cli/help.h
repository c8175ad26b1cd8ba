// The text of `--help`.
#pragma once

#include <string>

#include "cli/command.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's own name
class Option;
}

namespace headroom::cli {

// `FILE`; CLI11 adds what a value is checked for, which the description says in words.
[[nodiscard]] std::string value_name(const CLI::Option& option);

[[nodiscard]] std::string program_help(const CLI::App& app, const Context& context);
[[nodiscard]] std::string command_help(const Command& command,
                                       const CLI::App& app,
                                       const Context& context);

}  // namespace headroom::cli
