#include "cli/input/samples.h"

#include <filesystem>
#include <vector>

#include "headroom/base/env.h"

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

std::vector<fs::path> folders() {
  if (const auto chosen = env_string("HEADROOM_SAMPLES")) return {fs::path(*chosen)};
  std::vector<fs::path> out;
  if (auto beside = beside_program()) out.push_back(*std::move(beside));
  out.emplace_back(HEADROOM_SOURCE_SAMPLES);
  out.emplace_back(HEADROOM_INSTALLED_SAMPLES);
  return out;
}

}  // namespace

std::optional<std::string> find_sample(std::string_view name) {
  for (const fs::path& folder : folders()) {
    std::error_code error;
    fs::path path = folder / name;
    if (fs::is_regular_file(path, error)) return path.string();
  }
  return std::nullopt;
}

}  // namespace headroom::cli
