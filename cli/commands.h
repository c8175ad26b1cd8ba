// The registry: every command there is, in the order in which help lists them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace headroom::cli {

[[nodiscard]] std::span<const Command> commands();

// nullptr when there is none of that name.
[[nodiscard]] const Command* find_command(std::string_view name);

// `devices, replay, tune`: what an error lists.
[[nodiscard]] std::string command_names();

// Each defined in the command's own folder; bench in benchmarks/.
[[nodiscard]] Command bench_command();
[[nodiscard]] Command compare_command();
[[nodiscard]] Command convert_command();
[[nodiscard]] Command demo_command();
[[nodiscard]] Command devices_command();
[[nodiscard]] Command doctor_command();
[[nodiscard]] Command info_command();
[[nodiscard]] Command pack_command();
[[nodiscard]] Command plan_command();
[[nodiscard]] Command replay_command();
[[nodiscard]] Command train_command();
[[nodiscard]] Command tune_command();

}  // namespace headroom::cli
