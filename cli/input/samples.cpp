#include "cli/input/samples.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "headroom/base/env.h"

#include "cli/command.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// share/headroom/samples of the tree whose bin this program lies in.
std::optional<fs::path> beside_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
  return program.parent_path().parent_path() / "share" / "headroom" / "samples";
}

std::vector<fs::path> sample_folders() {
  if (const auto chosen = env_string("HEADROOM_SAMPLES")) return {fs::path(*chosen)};
  std::vector<fs::path> out;
  if (auto beside = beside_program()) out.push_back(*std::move(beside));
  out.emplace_back(HEADROOM_SOURCE_SAMPLES);
  out.emplace_back(HEADROOM_INSTALLED_SAMPLES);
  return out;
}

}  // namespace

std::optional<std::string> find_sample(std::string_view name) {
  for (const fs::path& folder : sample_folders()) {
    std::error_code error;
    fs::path path = folder / name;
    if (fs::is_regular_file(path, error)) return path.string();
  }
  return std::nullopt;
}

std::vector<std::string> all_samples(std::string_view command) {
  for (const fs::path& folder : sample_folders()) {
    std::vector<std::string> paths;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().string().ends_with(".pickle.zst")) paths.push_back(entry.path().string());
    }
    std::ranges::sort(paths);
    if (!paths.empty()) return paths;
  }
  throw UsageError(
      fmt::format("{0}: the samples were not found; name a recording: {0} RECORDING...", command));
}

}  // namespace headroom::cli
