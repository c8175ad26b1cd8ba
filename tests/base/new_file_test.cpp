// Files that appear whole or not at all.
#include "headroom/base/new_file.h"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"

#include "tests/support/temp_folder.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NewFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      out.push_back(entry.path().filename().string());
    }
    std::ranges::sort(out);
    return out;
  }
  static void put(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string get(const std::string& path) {
    std::stringstream out;
    out << std::ifstream(path, std::ios::binary).rdbuf();
    return out.str();
  }
  static void write(const std::string& path, std::string_view text, bool overwrite) {
    NewFile file(path, overwrite);
    file.write(text);
    file.commit();
  }
  template <class F>
  static std::string message_of(F&& f) {
    try {
      f();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  headroom::testing::TempFolder folder_{};
};

TEST_F(NewFiles, HaveTheirNameOnlyWhenTheyAreWhole) {
  {
    NewFile file(path("a"), false);
    file.write("half");
    EXPECT_FALSE(fs::exists(path("a")));
  }
  EXPECT_THAT(names(), IsEmpty());
  write(path("a"), "whole", false);
  EXPECT_EQ(get(path("a")), "whole");
  EXPECT_THAT(names(), ElementsAre("a"));
}

TEST_F(NewFiles, RefuseANameThatIsTaken) {
  put(path("a"), "precious");
  EXPECT_THAT(message_of([&] { write(path("a"), "new", false); }), HasSubstr("it exists already"));
  EXPECT_EQ(get(path("a")), "precious");
  // Taken while we wrote.
  NewFile file(path("b"), false);
  put(path("b"), "somebody else's");
  EXPECT_THAT(message_of([&] { file.commit(); }), HasSubstr("it exists already"));
  EXPECT_EQ(get(path("b")), "somebody else's");
  fs::create_directory(path("c"));
  EXPECT_THAT(message_of([&] { write(path("c"), "new", true); }), HasSubstr("it is a directory"));
  EXPECT_THAT(message_of([&] { write("/dev/null", "new", true); }),
              HasSubstr("it is not a regular file"));
}

TEST_F(NewFiles, KeepWhoMayReadWhatTheyReplace) {
  put(path("a"), "old");
  fs::permissions(path("a"), fs::perms::owner_read | fs::perms::owner_write);
  write(path("a"), "new", true);
  EXPECT_EQ(get(path("a")), "new");
  EXPECT_EQ(fs::status(path("a")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

// #21: a dangling link was replaced as if nothing were there.
TEST_F(NewFiles, TakeALinkForTheFileItLeadsTo) {
  fs::create_symlink("file", path("dangling"));
  EXPECT_THAT(message_of([&] { write(path("dangling"), "new", false); }),
              HasSubstr("it exists already"));
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
  write(path("dangling"), "one", true);  // makes the file
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
  EXPECT_EQ(get(path("file")), "one");
  write(path("dangling"), "two", true);  // replaces it
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
  EXPECT_EQ(get(path("file")), "two");
  fs::create_symlink("round", path("round"));
  EXPECT_THAT(message_of([&] { write(path("round"), "new", true); }), HasSubstr("without end"));
  EXPECT_THAT(names(), ElementsAre("dangling", "file", "round"));
}

// #21: what was there was gone when the disk was full.
TEST_F(NewFiles, LeaveWhatWasThereWhenTheDiskIsFull) {
  put(path("a"), "precious");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string said = message_of([&] { write(path("a"), std::string(100'000, 'x'), true); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)std::signal(SIGXFSZ, handler);
  EXPECT_EQ(said, "it cannot be written: File too large");
  EXPECT_EQ(get(path("a")), "precious");
  EXPECT_THAT(names(), ElementsAre("a"));
}

// #21: a signal left a file with a name that nobody knows.
TEST_F(NewFiles, LeaveNothingWhenTheirProcessIsKilled) {
  const int unnamed = ::open(folder_.path().c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (unnamed < 0) GTEST_SKIP() << "this file system has no files without names";
  (void)::close(unnamed);
  for (const int signal : {SIGTERM, SIGINT, SIGKILL, SIGXFSZ}) {
    const pid_t child = ::fork();
    if (child == 0) {
      NewFile file(path("a"), true);
      file.write(std::string(100'000, 'x'));
      (void)::kill(::getpid(), signal);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_THAT(names(), IsEmpty()) << signal;
  }
}

}  // namespace
}  // namespace headroom
