// Files of all kinds, and files that are none.
#include "headroom/trace/file.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/resource.h>
#include <vector>
#include <zstd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/trace/pickle/pickle_writer.h"

#include "tests/trace/pickle/pickle_text.h"

namespace headroom::trace {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TraceFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / ("headroom-files-"s + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }
  std::string put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  [[nodiscard]] static std::string get(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] std::string error_reading(const std::string& bytes) const {
    const auto file = read_trace(put("file", bytes));
    return file ? "no error" : to_string(file.error());
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_))
      out.push_back(entry.path().filename());
    return out;
  }

 private:
  fs::path folder_;
};

std::string packed(const std::string& bytes, int level = 3) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), level));
  return out;
}

Trace sample() {
  Trace trace;
  DeviceTrace& device = trace.devices.emplace_back();
  for (std::uint64_t i = 0; i < 100; ++i)
    device.events.push_back({.address = 512 * i, .size_bytes = i});
  return trace;
}

TEST_F(TraceFiles, ComeBackPlainAndPacked) {
  const Trace trace = sample();
  for (const char* name : {"a.pickle", "b.pkl", "c.pickle.zst"}) {
    ASSERT_TRUE(write_trace(trace, path(name)));
    const auto file = read_trace(path(name));
    ASSERT_TRUE(file) << to_string(file.error());
    EXPECT_EQ(file->trace.devices, trace.devices);
    EXPECT_EQ(file->format, Format::kPickle);
    EXPECT_EQ(file->is_packed, name == "c.pickle.zst"s);
    EXPECT_EQ(file->file_bytes, fs::file_size(path(name)));
  }
  EXPECT_LT(fs::file_size(path("c.pickle.zst")), fs::file_size(path("a.pickle")));
}

TEST_F(TraceFiles, AreReadByContentAndNotByName) {
  ASSERT_TRUE(write_trace(sample(), path("a.pickle.zst")));
  fs::rename(path("a.pickle.zst"), path("a.txt"));
  EXPECT_TRUE(read_trace(path("a.txt")));
}

TEST_F(TraceFiles, SayWhatTheyAreInsteadOfARecording) {
  EXPECT_THAT(error_reading(""), HasSubstr("it is empty"));
  EXPECT_THAT(error_reading("<!DOCTYPE html><html>"), HasSubstr("it is HTML or XML"));
  EXPECT_THAT(error_reading("  {\"segments\": []}"), HasSubstr("it is JSON"));
  EXPECT_THAT(error_reading("PK\x03\x04zip"),
              HasSubstr("it is a zip archive, perhaps a checkpoint"));
  EXPECT_THAT(error_reading("\x1f\x8b\x08"), HasSubstr("packed with gzip"));
  EXPECT_THAT(error_reading("(dp0\n"), HasSubstr("a pickle of protocol 0"));
  EXPECT_THAT(error_reading("action,addr,size\n"), HasSubstr("it is a text"));
  EXPECT_THAT(error_reading("\x01\x02\x03\x04"), HasSubstr("is it a recording?"));
  EXPECT_THAT(to_string(read_trace(::testing::TempDir()).error()), HasSubstr("it is a directory"));
  EXPECT_THAT(to_string(read_trace(path("none")).error()),
              HasSubstr("it cannot be opened: No such file or directory"));
}

TEST_F(TraceFiles, SayWhenTheZstdIsWrong) {
  const std::string whole = packed(*write_pickle(sample()));
  for (std::size_t size = 4; size < whole.size(); size += 7) {
    EXPECT_THAT(error_reading(whole.substr(0, size)), HasSubstr("zstd data")) << size;
  }
  EXPECT_THAT(error_reading("\x28\xb5\x2f\xfdgarbage"), HasSubstr("zstd data is damaged"));
  EXPECT_THAT(error_reading(packed("hello, this is no recording")), HasSubstr("it is a text"));
}

TEST_F(TraceFiles, DoNotUnpackWithoutEnd) {
  const std::string bomb = packed("\x80\x04" + std::string(256 << 20U, '\0'));
  ASSERT_LT(bomb.size(), 64U << 10U);
  EXPECT_THAT(error_reading(bomb), HasSubstr("unpacks to more than 16MiB"));
  // What is no recording is left after its first bytes.
  EXPECT_THAT(error_reading(packed(std::string(256 << 20U, '\0'))),
              HasSubstr("is it a recording?"));
}

// Frames that claim to be of 2^63 bytes, or to look back as far as 2^41.
TEST_F(TraceFiles, DoNotBelieveWhatAFrameSaysOfItself) {
  const std::string magic = "\x28\xb5\x2f\xfd";
  const std::string last_block("\x01\0\0", 3);
  const std::string huge = magic + "\xe0" + std::string(7, '\0') + "\x80" + last_block;
  EXPECT_THAT(error_reading(huge), HasSubstr("a window of more than 128MiB"));
  EXPECT_THAT(error_reading(magic + std::string("\0\xf8", 2) + last_block),
              HasSubstr("a window of more than 128MiB"));
  std::string frames;  // that hold nothing
  for (int i = 0; i < 100'000; ++i) frames += magic + std::string("\x20\0", 2) + last_block;
  EXPECT_THAT(error_reading(frames), HasSubstr("it is empty"));
}

TEST_F(TraceFiles, AreNotOverwrittenUnasked) {
  const std::string there = put("a.pickle", "precious");
  const auto refused = write_trace(sample(), there);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("it exists already"));
  EXPECT_EQ(get(there), "precious");
  EXPECT_TRUE(write_trace(sample(), there, {.overwrite = true}));
  EXPECT_TRUE(read_trace(there));
  EXPECT_THAT(names(), ::testing::ElementsAre("a.pickle"));
}

TEST_F(TraceFiles, LeaveNothingBehindWhenWritingFails) {
  EXPECT_THAT(write_trace(sample(), path("a.txt")).error().message,
              HasSubstr("the name does not say the format: end it in .pickle"));
  EXPECT_THAT(write_trace(sample(), path("no/such/folder/a.pickle")).error().message,
              HasSubstr("it cannot be made: No such file or directory"));
  Trace ranks = sample();
  ranks.devices.push_back({.rank = 1});
  EXPECT_FALSE(write_trace(ranks, path("a.pickle")));
  fs::create_directory(path("b.pickle"));
  EXPECT_THAT(write_trace(sample(), path("b.pickle"), {.overwrite = true}).error().message,
              HasSubstr("it is a directory"));
  EXPECT_THAT(names(), ::testing::ElementsAre("b.pickle"));
}

TEST_F(TraceFiles, RefuseWhatIsNoRegularFile) {
  fs::create_symlink("/dev/null", path("null.pickle"));
  EXPECT_THAT(write_trace(sample(), path("null.pickle"), {.overwrite = true}).error().message,
              HasSubstr("it is not a regular file"));
}

TEST_F(TraceFiles, SayWhenTheDiskIsFull) {
  // A limit on the size of files fails the same calls.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto done = write_trace(sample(), path("a.pickle"));
  const auto done_packed = write_trace(sample(), path("a.pickle.zst"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("it cannot be written: File too large"));
  ASSERT_FALSE(done_packed);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(TraceFiles, ReportProgress) {
  std::vector<double> parts;
  const auto keep = [&parts](double part) { parts.push_back(part); };
  ASSERT_TRUE(write_trace(sample(), path("a.pickle.zst"), {.progress = keep}));
  EXPECT_EQ(parts.back(), 1);
  parts.clear();
  ASSERT_TRUE(read_trace(path("a.pickle.zst"), {.progress = keep}));
  EXPECT_EQ(parts.back(), 1);
  EXPECT_TRUE(std::ranges::is_sorted(parts));
}

TEST(TargetOf, GoesByTheEnding) {
  EXPECT_EQ(target_of("x.pickle")->format, Format::kPickle);
  EXPECT_EQ(target_of("x.hrt.zst")->format, Format::kHrt);
  EXPECT_TRUE(target_of("x.hrt.zst")->is_packed);
  EXPECT_EQ(target_of("x.perfetto.json")->format, Format::kPerfetto);
  EXPECT_FALSE(target_of("x.json"));
  EXPECT_FALSE(target_of("pickle"));
}

}  // namespace
}  // namespace headroom::trace
