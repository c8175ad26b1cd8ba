#include "cli/commands.h"

#include <vector>

namespace headroom::cli {

std::span<const Command> commands() {
  static const std::vector<Command> all{demo_command(),
                                        doctor_command(),
                                        info_command(),
                                        replay_command(),
                                        compare_command(),
                                        tune_command(),
                                        convert_command(),
                                        plan_command(),
                                        train_command(),
                                        pack_command(),
                                        devices_command(),
                                        bench_command()};
  return all;
}

const Command* find_command(std::string_view name) {
  for (const Command& command : commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

std::string command_names() {
  std::string out;
  for (const Command& command : commands()) {
    if (!out.empty()) out += ", ";
    out.append(command.name);
  }
  return out;
}

}  // namespace headroom::cli
