#include "cli/input/documents.h"

#include <filesystem>
#include <vector>

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// share/doc/headroom of the tree whose bin this program lies in, the tree it was built in, and
// where it was to be installed.
std::vector<fs::path> document_folders() {
  std::vector<fs::path> out;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) out.push_back(program.parent_path().parent_path() / "share" / "doc" / "headroom");
  out.emplace_back(HEADROOM_SOURCE_DOCUMENTS);
  out.emplace_back(HEADROOM_INSTALLED_DOCUMENTS);
  return out;
}

}  // namespace

std::optional<std::string> find_document(std::string_view name) {
  for (const fs::path& folder : document_folders()) {
    std::error_code error;
    const fs::path path = folder / name;
    if (!fs::is_regular_file(path, error)) continue;
    return fs::equivalent(path, name, error) ? std::string(name) : path.string();
  }
  return std::nullopt;
}

}  // namespace headroom::cli
