// The text of `--help`.
#pragma once

#include <string>

#include "cli/command.h"

namespace headroom::cli {

[[nodiscard]] std::string program_help(const CLI::App& app, const Context& context);
[[nodiscard]] std::string command_help(const Command& command,
                                       const CLI::App& app,
                                       const Context& context);

}  // namespace headroom::cli
