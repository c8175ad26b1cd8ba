// Files that a user names.
#include "headroom/base/input_file.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"

#include "tests/support/temp_folder.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string input_error(const std::string& path, const CheckStart& check = {}) {
  try {
    (void)read_input(path, check);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class InputFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }

  headroom::testing::TempFolder folder_{};
};

TEST_F(InputFiles, AreReadToTheirEnd) {
  for (const std::size_t size : {0UL, 1UL, 4095UL, 4096UL, 4097UL, 3'000'000UL}) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 / 5);
    std::ofstream(path("a"), std::ios::binary) << text;
    EXPECT_EQ(text_of(read_input(path("a"))), text) << size;
  }
}

TEST_F(InputFiles, MayBePipes) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const std::string text(100'000, 'x');
  const std::jthread writer([&] { std::ofstream(path("pipe"), std::ios::binary) << text; });
  EXPECT_EQ(text_of(read_input(path("pipe"))), text);
}

// #21: /dev/zero was read without end.
TEST_F(InputFiles, AreNoDevicesAndNoFolders) {
  EXPECT_THAT(input_error("/dev/zero"), HasSubstr("it is a device"));
  EXPECT_THAT(input_error("/dev/null"), HasSubstr("it is a device"));
  EXPECT_THAT(input_error(folder_.path().string()), HasSubstr("it is a directory"));
  EXPECT_THAT(input_error(path("none")), HasSubstr("cannot be opened: No such file or directory"));
}

// A pipe without end is left after what its first bytes say.
TEST_F(InputFiles, AreLeftAfterTheFirstBytesWhenThoseAreWrong) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const std::jthread writer([&] {
    (void)std::signal(SIGPIPE, SIG_IGN);
    std::ofstream endless(path("pipe"), std::ios::binary);
    const std::string zeros(4096, '\0');
    while (endless) endless << zeros << std::flush;
  });
  EXPECT_EQ(input_error(path("pipe"),
                        [](std::span<const std::byte> start) {
                          throw Error("wrong after " + std::to_string(start.size()));
                        }),
            "wrong after 4096");
}

TEST_F(InputFiles, LargerThanTheMachineAreRefusedUnread) {
  std::ofstream(path("sparse")) << "x";
  fs::resize_file(path("sparse"), std::uintmax_t{1} << 43U);  // 8 TiB, all of it a hole
  EXPECT_THAT(input_error(path("sparse")), HasSubstr("it has 8TiB, and this machine"));
}

}  // namespace
}  // namespace headroom
