#include "headroom/trace/record/internal/free_path.h"

#include <filesystem>
#include <unistd.h>

#include "headroom/base/file_name.h"

namespace headroom::trace::internal {
namespace {

// Where the ending begins: `.pickle.zst` and `.perfetto.json` count as one.
std::size_t ending_of(const std::string& path) {
  const std::size_t name = path.size() - file_name(path).size();
  std::size_t dot = path.rfind('.');
  if (dot == std::string::npos || dot <= name) return path.size();
  const std::string ending = path.substr(dot);
  if (ending == ".zst" || ending == ".json") {
    const std::size_t before = path.rfind('.', dot - 1);
    if (before != std::string::npos && before > name) dot = before;
  }
  return dot;
}

}  // namespace

std::string expand_path(const std::string& pattern) {
  std::string out = pattern;
  const std::string number = std::to_string(::getpid());
  for (std::size_t at = out.find("%p"); at != std::string::npos; at = out.find("%p", at)) {
    out.replace(at, 2, number);
  }
  return out;
}

std::string free_path(const std::string& path) {
  std::string out = path;
  const std::size_t ending = ending_of(path);
  std::error_code error;
  for (int number = 1; std::filesystem::exists(out, error); ++number) {
    out = path;
    out.insert(ending, "-" + std::to_string(number));
  }
  return out;
}

}  // namespace headroom::trace::internal
