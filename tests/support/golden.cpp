#include "tests/support/golden.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

namespace headroom::testing {
namespace {

constexpr const char* kHow =
    "HEADROOM_UPDATE_GOLDEN=1 writes the file anew; then read the difference before committing it";

std::string first_difference(std::string_view expected, std::string_view found) {
  int line = 1;
  std::size_t start = 0;
  std::size_t at = 0;
  for (; at < expected.size() && at < found.size() && expected[at] == found[at]; ++at) {
    if (expected[at] != '\n') continue;
    ++line;
    start = at + 1;
  }
  const auto rest_of_line = [start](std::string_view text) {
    const std::string_view rest = text.substr(std::min(start, text.size()));
    return std::string(rest.substr(0, rest.find('\n')));
  };
  return "line " + std::to_string(line) + "\n  expected: " + rest_of_line(expected) +
         "\n  found:    " + rest_of_line(found);
}

}  // namespace

void expect_golden(const std::string& name, std::string_view text) {
  const std::filesystem::path path = std::filesystem::path(HEADROOM_GOLDEN_DIR) / name;
  if (const char* update = std::getenv("HEADROOM_UPDATE_GOLDEN");
      update != nullptr && std::string_view(update) == "1") {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  std::ifstream in(path, std::ios::binary);
  ASSERT_TRUE(in) << name << " does not exist. " << kHow;
  const std::string expected(std::istreambuf_iterator<char>(in), {});
  EXPECT_TRUE(expected == text) << name << " differs at " << first_difference(expected, text)
                                << "\n"
                                << kHow;
}

}  // namespace headroom::testing
