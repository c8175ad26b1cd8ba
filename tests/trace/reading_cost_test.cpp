// What reading may cost (docs/format/reading.md): files made to take as much as they can, each read
// by a program of its own whose peak is measured (#21).
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>
#include <zstd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/trace/hrt/internal/byte_stream.h"
#include "headroom/trace/hrt/internal/crc32c.h"
#include "headroom/trace/hrt/internal/hrt_format.h"
#include "headroom/trace/internal/budget.h"

#include "tests/support/process.h"
#include "tests/support/sanitized.h"
#include "tests/trace/pickle/pickle_text.h"

namespace headroom::trace {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using ::testing::AnyOf;
using testing::dict;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::list;
using testing::little_endian;
using testing::number;
using testing::pickle;
using testing::raw;
using testing::str;

// A sanitizer's own memory is more than what is measured.
constexpr bool kCanMeasure = !headroom::testing::kIsSanitized;

// Pages are 4 KiB or 2 MiB, and a large array begins and ends with one.
constexpr std::uint64_t kRounding = 24_MiB;

std::string repeated(const std::string& piece, std::size_t bytes) {
  std::string out;
  out.reserve(bytes + piece.size());
  while (out.size() < bytes) out += piece;
  return out;
}

// Pieces that differ: piece(i) until there are so many bytes.
std::string numbered(std::size_t bytes, const std::function<std::string(std::uint32_t)>& piece) {
  std::string out;
  for (std::uint32_t i = 0; out.size() < bytes; ++i) out += piece(i);
  return out;
}

std::string packed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string unknown_key(const std::string& value) {
  return pickle(dict("segments", list(), "device_traces", list(), "somebody", value));
}

const std::string kEvent = dict("action", str("alloc"), "addr", "K\x01", "size", "K\x01");
const std::string kBlock = dict("size", "K\x05", "state", str("inactive"));

std::string segment(const std::string& blocks) {
  return dict("device",
              raw("K\0"),
              "address",
              number(512),
              "total_size",
              "K\x05",
              "segment_type",
              str("small"),
              "blocks",
              blocks);
}

std::string frame(const std::string& name) {
  return dict("name", name, "filename", str("x.py"), "line", "K\x03");
}

// A value that is put into the memo and dropped, to be named by number later.
std::string kept(const std::string& value) { return value + raw("q\x00") + "0"; }

std::string snapshot(const std::string& before,
                     const std::string& segments,
                     const std::string& traces) {
  return raw("\x80\x04") + before + dict("segments", segments, "device_traces", traces) + ".";
}

// What a file is made of: `bytes` of it, as a pickle.
struct Hostile {
  const char* name;
  std::string (*make)(std::size_t bytes);
};

const std::vector<Hostile> kHostile{
    {"empty dictionaries under an unknown key",
     [](std::size_t n) { return unknown_key("](" + repeated("}", n) + "e"); }},
    {"empty lists under an unknown key",
     [](std::size_t n) { return unknown_key("](" + repeated("]", n) + "e"); }},
    {"empty tuples", [](std::size_t n) { return unknown_key("](" + repeated(")", n) + "e"); }},
    {"nothings", [](std::size_t n) { return unknown_key("](" + repeated("N", n) + "e"); }},
    {"marks", [](std::size_t n) { return unknown_key(repeated("(", n)); }},
    {"lists in lists",
     [](std::size_t n) { return unknown_key(repeated("]", n / 2) + repeated("a", n / 2 - 1)); }},
    {"one value in the memo again and again",
     [](std::size_t n) { return unknown_key("N" + repeated("\x94", n)); }},
    {"numbers of the memo far apart",
     [](std::size_t n) {
       return unknown_key("N" + numbered(n, [](std::uint32_t i) {
                            return "r" + little_endian(UINT32_MAX - 3 * i, 4);
                          }));
     }},
    {"many short strings",
     [](std::size_t n) {
       return unknown_key(
           "](" + numbered(n, [](std::uint32_t i) { return str(std::to_string(i)); }) + "e");
     }},
    {"floats", [](std::size_t n) { return unknown_key("](" + repeated("G12345678", n) + "e"); }},
    {"large integers",
     [](std::size_t n) { return unknown_key("](" + repeated(number(UINT64_MAX), n) + "e"); }},
    {"two lists that grow by turns",
     [](std::size_t n) {
       return unknown_key("]q\x01"s + "0]q\x02" + repeated("Na0h\x01Na0h\x02"s, n));
     }},
    {"dictionaries of one key each",
     [](std::size_t n) {
       return unknown_key(
           "](" + numbered(n, [](std::uint32_t i) { return "}" + str(std::to_string(i)) + "Ns"; }) +
           "e");
     }},
    {"a dictionary with many keys",
     [](std::size_t n) {
       return unknown_key(
           "}(" + numbered(n, [](std::uint32_t i) { return str(std::to_string(i)) + "N"; }) + "u");
     }},
    {"many unknown keys beside the known",
     [](std::size_t n) {
       return pickle("}(" + str("segments") + "]" +
                     numbered(n, [](std::uint32_t i) { return str(std::to_string(i)) + "N"; }) +
                     "u");
     }},
    {"devices without events",
     [](std::size_t n) { return snapshot("", "]", "](" + repeated("]", n) + "e"); }},
    {"one event named again and again",
     [](std::size_t n) {
       return snapshot(kept(kEvent), "]", list("](" + repeated(raw("h\x00"), n) + "e"));
     }},
    {"one history for every device",
     [](std::size_t n) {
       return snapshot(kept(list(kEvent)), "]", "](" + repeated(raw("h\x00"), n) + "e");
     }},
    {"one segment named again and again",
     [](std::size_t n) {
       return snapshot(kept(segment(list())), "](" + repeated(raw("h\x00"), n) + "e", "]");
     }},
    {"one block named again and again",
     [](std::size_t n) {
       return snapshot(kept(kBlock), list(segment("](" + repeated(raw("h\x00"), n) + "e")), "]");
     }},
    {"one frame named again and again",
     [](std::size_t n) {
       const std::string stack = "](" + repeated(raw("h\x00"), n) + "e";
       return snapshot(
           kept(frame(str("f"))),
           "]",
           list(list(
               dict("action", str("alloc"), "addr", "K\x01", "size", "K\x01", "frames", stack))));
     }},
    {"a stack of frames that differ",
     [](std::size_t n) {
       const std::string stack =
           "](" + numbered(n, [](std::uint32_t i) { return frame(str(std::to_string(i))); }) + "e";
       return snapshot(
           "",
           "]",
           list(list(
               dict("action", str("alloc"), "addr", "K\x01", "size", "K\x01", "frames", stack))));
     }},
    {"an unknown key in every event, and another value",
     [](std::size_t n) {
       return snapshot("",
                       "]",
                       list("](" +
                            numbered(n,
                                     [](std::uint32_t i) {
                                       return dict("action",
                                                   str("alloc"),
                                                   "addr",
                                                   "K\x01",
                                                   "size",
                                                   "K\x01",
                                                   "x",
                                                   str(std::to_string(i)));
                                     }) +
                            "e"));
     }},
    {"a stream of its own for every event",
     [](std::size_t n) {
       return snapshot("",
                       "]",
                       list("](" +
                            numbered(n,
                                     [](std::uint32_t i) {
                                       return dict("action",
                                                   str("alloc"),
                                                   "addr",
                                                   "K\x01",
                                                   "size",
                                                   "K\x01",
                                                   "stream",
                                                   "J" + little_endian(i, 4));
                                     }) +
                            "e"));
     }},
    {"annotations",
     [](std::size_t n) {
       const std::string one = dict(
           "name", str("a"), "stage", str("START"), "device", raw("K\0"), "time_us", raw("K\0"));
       return kept(one).insert(0, raw("\x80\x04")) +
              dict(
                  "segments", "]", "external_annotations", "](" + repeated(raw("h\x00"), n) + "e") +
              ".";
     }},
};

// Blocks of a .hrt with sound headers around these bodies.
class HrtFile {
 public:
  HrtFile() { file_.raw(internal::file_header()); }
  void add(internal::BlockKind kind, std::uint32_t count, const std::string& body, int device = 0) {
    internal::BlockHeader header{.kind = static_cast<std::uint8_t>(kind), .number = number_++};
    header.stored_bytes = header.raw_bytes = static_cast<std::uint32_t>(body.size());
    header.device = device;
    header.count = count;
    header.body_checksum = internal::crc32c(std::as_bytes(std::span(body)));
    file_.raw(internal::to_bytes(header));
    file_.raw(std::as_bytes(std::span(body)));
  }
  [[nodiscard]] std::string text() const {
    return {reinterpret_cast<const char*>(file_.bytes().data()), file_.size()};
  }

 private:
  internal::ByteWriter file_;
  std::uint32_t number_ = 0;
};

std::string varint(std::uint64_t value) {
  internal::ByteWriter out;
  out.varint(value);
  return {reinterpret_cast<const char*>(out.bytes().data()), out.size()};
}

std::string one_block(internal::BlockKind kind, std::size_t count, const std::string& body) {
  HrtFile file;
  file.add(kind, static_cast<std::uint32_t>(count), body);
  return file.text();
}

using internal::BlockKind;

const std::vector<Hostile> kHostileHrt{
    {"nothings in a list",
     [](std::size_t n) {
       return one_block(BlockKind::kValues, 1, "\x07" + varint(n) + std::string(n, '\0'));
     }},
    {"empty lists in a list",
     [](std::size_t n) {
       return one_block(BlockKind::kValues, 1, "\x07" + varint(n / 2) + repeated(raw("\x07\0"), n));
     }},
    {"empty lists",
     [](std::size_t n) {
       return one_block(BlockKind::kValues, n / 2, repeated(raw("\x07\0"), n));
     }},
    {"lists that claim to be long",
     [](std::size_t n) {
       return one_block(
           BlockKind::kValues, 1, repeated("\x07" + varint(n / 2), 400) + std::string(n, '\0'));
     }},
    {"strings",
     [](std::size_t n) {
       std::uint32_t count = 0;
       const std::string body = numbered(n, [&count](std::uint32_t i) {
         count = i + 1;
         return "\x04" + little_endian(i, 4);
       });
       return one_block(BlockKind::kStrings, count, body);
     }},
    {"frames",
     [](std::size_t n) { return one_block(BlockKind::kFrames, n / 4, std::string(n, '\0')); }},
    {"a stack of one frame again and again",
     [](std::size_t n) {
       HrtFile file;
       file.add(BlockKind::kFrames, 1, std::string(4, '\0'));
       file.add(BlockKind::kStacks, 1, varint(n) + std::string(n, '\0'));
       return file.text();
     }},
    {"details",
     [](std::size_t n) {
       std::uint32_t count = 0;
       const std::string body = numbered(n, [&count](std::uint32_t i) {
         count = i + 1;
         return "\x04" + varint(i) + raw("\0\0");
       });
       return one_block(BlockKind::kDetails, count, body);
     }},
    {"segments",
     [](std::size_t n) {
       return one_block(BlockKind::kSegments, n / 9, std::string(n / 9 * 9, '\0'));
     }},
    {"annotations",
     [](std::size_t n) {
       return one_block(BlockKind::kAnnotations, n / 6, std::string(n / 6 * 6, '\0'));
     }},
    {"events",
     [](std::size_t n) {
       return one_block(BlockKind::kEvents, n / 7, raw("\0\x01\0") + std::string(n / 7 * 7, '\0'));
     }},
    {"devices",
     [](std::size_t n) {
       HrtFile file;
       for (std::size_t i = 0; i < n / 49; ++i) {
         file.add(BlockKind::kDevice, 0, raw("\0"), static_cast<int>(i));
       }
       return file.text();
     }},
};

struct Cost {
  std::uint64_t peak_bytes = 0;
  std::string said{};
};

class ReadingCost : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kCanMeasure) GTEST_SKIP() << "a sanitizer takes more memory than the reader";
    folder_ = fs::path(::testing::TempDir()) / ("headroom-cost-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] Cost cost_of(const std::string& bytes) const {
    const std::string path = (folder_ / "file").string();
    std::ofstream(path, std::ios::binary) << bytes;
    const auto done =
        headroom::testing::run_process({.program = HEADROOM_READ_PROGRAM, .arguments = {path}});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    const std::size_t line = done.out.find('\n');
    return {.peak_bytes = std::stoull(done.out), .said = done.out.substr(line + 1)};
  }

  // Plain, and packed by zstd.
  void expect_within_limits(const Hostile& hostile) const {
    const std::string file = hostile.make(4_MiB);
    const Cost plain = cost_of(file);
    EXPECT_LE(plain.peak_bytes,
              internal::kFreeBytes + internal::kMostPerUnpackedByte * file.size() + kRounding)
        << hostile.name << ": " << plain.said;
    EXPECT_THAT(plain.said,
                AnyOf(EndsWith("events\n"),
                      HasSubstr("of memory"),
                      HasSubstr("unfolds to"),
                      HasSubstr("nests deeper"),
                      HasSubstr("nested too deep"),
                      HasSubstr("wants a dictionary"),
                      HasSubstr("devices"),
                      HasSubstr("on the stack")))
        << hostile.name;
    const std::string small = packed(file);
    EXPECT_LE(cost_of(small).peak_bytes,
              internal::kFreeBytes + internal::kMostPerFileByte * small.size() + kRounding)
        << hostile.name << " in " << small.size() << " bytes";
  }

  fs::path folder_;
};

TEST_F(ReadingCost, ASnapshotTakesNoMoreThanItsBytesAllow) {
  for (const Hostile& hostile : kHostile) expect_within_limits(hostile);
}

TEST_F(ReadingCost, OurOwnFormatTakesNoMoreThanItsBytesAllow) {
  for (const Hostile& hostile : kHostileHrt) expect_within_limits(hostile);
}

// The finding: 3.3 GiB for 2 kB.
TEST_F(ReadingCost, TwoKilobytesOfEmptyDictionariesAreRefused) {
  const std::string file = packed(unknown_key("](" + repeated("}", 60_MiB) + "e"));
  ASSERT_LT(file.size(), 8_KiB);
  const Cost cost = cost_of(file);
  EXPECT_LT(cost.peak_bytes, 96_MiB) << cost.said;
  EXPECT_THAT(cost.said, HasSubstr("the file unpacks to more than 16MiB"));
}

TEST_F(ReadingCost, ARealRecordingTakesAFewBytesForEachOfItsOwn) {
  for (const char* name : {"gpt2_varlen.pickle.zst", "leak_loss.pickle.zst"}) {
    std::ifstream in(fs::path(HEADROOM_SAMPLES) / name, std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(in), {}};
    const Cost cost = cost_of(file);
    EXPECT_THAT(cost.said, EndsWith("events\n"));
    EXPECT_LT(cost.peak_bytes, 32_MiB + 256 * file.size()) << name;
  }
}

}  // namespace
}  // namespace headroom::trace
