#include "headroom/memory/config.h"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/memory/config_dialects.h"

namespace headroom::memory {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Divisions = std::array<std::uint64_t, 16>;

using testing::error_of;
using testing::pytorch;
using testing::strict;

// --- Values that both dialects take --------------------------------------------------------------

struct Valid {
  const char* text;
  std::function<bool(const AllocatorConfig&)> holds;
  PyTorchVersion version = kPyTorch215;
};

const std::vector<Valid>& valid_settings() {
  using C = const AllocatorConfig&;
  constexpr std::uint64_t kMostMebibytes = 17592186044415ULL;
  static const std::vector<Valid> settings{
      {"", [](C c) { return to_string(c).empty(); }},
      {"backend:native", [](C c) { return c.backend == "native"; }},
      {"backend:cudaMallocAsync", [](C c) { return c.backend == "cudaMallocAsync"; }},
      {"large_segment_size_mb:11", [](C c) { return c.large_segment_bytes == 11_MiB; }},
      {"large_segment_size_mb:64", [](C c) { return c.max_non_split_rounding() == 64_MiB; }},
      {"max_split_size_mb:20", [](C c) { return c.max_split_bytes == 20_MiB; }},
      {"max_split_size_mb:21", [](C c) { return c.max_split_bytes == 21_MiB; }, kPyTorch29},
      {"max_split_size_mb:20", [](C c) { return c.max_split_bytes == 20_MiB; }, kPyTorch210},
      {"max_split_size_mb:17592186044415",
       [](C c) { return c.max_split_bytes == kMostMebibytes << 20U; }},
      {"max_non_split_rounding_mb:20", [](C c) { return c.max_non_split_rounding() == 20_MiB; }},
      {"max_non_split_rounding_mb:1000",
       [](C c) { return c.max_non_split_rounding() == 1000_MiB; }},
      {"garbage_collection_threshold:0.8,per_process_memory_fraction:0.5",
       [](C c) { return c.garbage_collection_threshold == 0.8 && c.memory_fraction == 0.5; }},
      {"per_process_memory_fraction:0", [](C c) { return c.memory_fraction == 0; }},
      {"per_process_memory_fraction:1.0", [](C c) { return c.memory_fraction == 1; }},
      {"expandable_segments:True", [](C c) { return c.expandable_segments; }},
      {"expandable_segments:False", [](C c) { return !c.expandable_segments; }},
      {"expandable_segments_reserve:0.5",
       [](C c) { return c.expandable_reserve_fraction == 0.5 && !c.expandable_reserve_bytes; }},
      {"expandable_segments_reserve:40G",
       [](C c) { return c.expandable_reserve_bytes == 40_GiB && !c.expandable_reserve_fraction; }},
      {"expandable_segments_reserve:1.5g",
       [](C c) { return c.expandable_reserve_bytes == 1536_MiB; }},
      {"expandable_segments_reserve:1e30G",
       [](C c) { return c.expandable_reserve_bytes == UINT64_MAX; }},
      {"release_lock_on_cudamalloc:True", [](C c) { return c.release_lock_on_device_alloc; }},
      {"release_lock_on_hipmalloc:True", [](C c) { return c.release_lock_on_device_alloc; }},
      {"graph_capture_record_stream_reuse:True",
       [](C c) { return c.graph_capture_record_stream_reuse; }},
      {"throw_on_cudamalloc_oom:True", [](C c) { return c.throw_on_device_out_of_memory; }},
      {"pinned_use_cuda_host_register:True", [](C c) { return c.pinned.use_host_register; }},
      {"pinned_use_hip_host_register:True", [](C c) { return c.pinned.use_host_register; }},
      {"pinned_num_register_threads:1", [](C c) { return c.pinned.register_threads == 1; }},
      {"pinned_num_register_threads:128", [](C c) { return c.pinned.register_threads == 128; }},
      {"pinned_use_background_threads:True", [](C c) { return c.pinned.use_background_threads; }},
      {"pinned_reserve_segment_size_mb:1",
       [](C c) { return c.pinned.reserve_segment_bytes == 1_MiB; }},
      {"pinned_max_round_threshold_mb:0", [](C c) { return c.pinned.max_round_bytes == 0U; }},
      {"pinned_max_cached_size_mb:7", [](C c) { return c.pinned.max_cached_bytes == 7_MiB; }},
      {"pinned_free_catch_all:True", [](C c) { return c.pinned.free_catch_all; }},
      {" max_split_size_mb : 128 ,\texpandable_segments:True ",
       [](C c) { return c.max_split_bytes == 128_MiB && c.expandable_segments; }},
      // The segment size is read first, wherever it stands.
      {"max_split_size_mb:15,large_segment_size_mb:12",
       [](C c) { return c.max_split_bytes == 15_MiB && c.large_segment_bytes == 12_MiB; }},
  };
  return settings;
}

void expect_taken(const Valid& setting, const Result<ParsedConfig, std::string>& parsed) {
  ASSERT_TRUE(parsed) << setting.text << ": " << parsed.error();
  EXPECT_TRUE(setting.holds(parsed->config)) << setting.text;
  EXPECT_THAT(parsed->warnings, IsEmpty()) << setting.text;
  EXPECT_EQ(parsed->config.text, setting.text);
}

TEST(Config, BothDialectsTakeWhatIsValid) {
  for (const Valid& setting : valid_settings()) {
    expect_taken(setting, strict(setting.text, setting.version));
    expect_taken(setting, pytorch(setting.text, setting.version));
  }
}

TEST(Config, WrittenSettingsReadBackTheSame) {
  std::string all;
  for (const Valid& setting : valid_settings()) {
    const auto parsed = strict(setting.text, setting.version);
    ASSERT_TRUE(parsed);
    const std::string written = to_string(parsed->config);
    const auto again = strict(written, setting.version);
    ASSERT_TRUE(again) << written << ": " << again.error();
    EXPECT_TRUE(setting.holds(again->config)) << setting.text << " -> " << written;
    EXPECT_EQ(to_string(again->config), written);
  }
}

TEST(Config, DefaultsAreWrittenAsNothing) { EXPECT_EQ(to_string(AllocatorConfig{}), ""); }

TEST(Config, EverySettingIsWritten) {
  AllocatorConfig config{
      .max_split_bytes = 128_MiB,
      .max_non_split_rounding_bytes = 32_MiB,
      .large_segment_bytes = 24_MiB,
      .garbage_collection_threshold = 0.8,
      .expandable_segments = true,
      .expandable_reserve_fraction = 0.1,
      .memory_fraction = 0.3,
      .throw_on_device_out_of_memory = true,
      .release_lock_on_device_alloc = true,
      .graph_capture_record_stream_reuse = true,
      .backend = "cudaMallocAsync",
      .pinned = {.use_host_register = true,
                 .register_threads = 8,
                 .use_background_threads = true,
                 .reserve_segment_bytes = 64_MiB,
                 .max_round_bytes = 3_MiB,
                 .max_cached_bytes = 9_MiB,
                 .free_catch_all = true},
  };
  config.roundup_power2_divisions = {8, 8, 8, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  EXPECT_EQ(to_string(config),
            "backend:cudaMallocAsync,large_segment_size_mb:24,max_split_size_mb:128,"
            "max_non_split_rounding_mb:32,roundup_power2_divisions:[4:8,16:4,32768:1],"
            "garbage_collection_threshold:0.8,per_process_memory_fraction:0.3,"
            "expandable_segments:True,expandable_segments_reserve:0.1,"
            "throw_on_cudamalloc_oom:True,release_lock_on_cudamalloc:True,"
            "graph_capture_record_stream_reuse:True,pinned_use_cuda_host_register:True,"
            "pinned_num_register_threads:8,pinned_use_background_threads:True,"
            "pinned_reserve_segment_size_mb:64,pinned_max_round_threshold_mb:3,"
            "pinned_max_cached_size_mb:9,pinned_free_catch_all:True");
  const auto again = strict(to_string(config));
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(again->config.roundup_power2_divisions, config.roundup_power2_divisions);
  EXPECT_EQ(again->config.pinned.max_cached_bytes, config.pinned.max_cached_bytes);
  EXPECT_EQ(to_string(again->config), to_string(config));
}

// --- Values that neither takes -------------------------------------------------------------------

struct Invalid {
  const char* text;
  const char* strict_error;   // a part of it
  const char* pytorch_error;  // its beginning
  PyTorchVersion version = kPyTorch215;
};

TEST(Config, BothDialectsRefuseWhatIsInvalid) {
  const std::vector<Invalid> settings{
      {"max_split_size_mb:19",
       "max_split_size_mb: found '19', allowed is a whole number from 20 to 17592186044415 (MiB)",
       "CachingAllocator option max_split_size_mb too small, must be >= 20"},
      {"max_split_size_mb:20",
       "from 21 to",
       "CachingAllocator option max_split_size_mb too small, must be > 20",
       kPyTorch29},
      {"max_non_split_rounding_mb:19",
       "max_non_split_rounding_mb: found '19'",
       "CachingAllocator option max_non_split_rounding_mb too small, must be >= 20"},
      {"max_split_size_mb:23,large_segment_size_mb:24",
       "from 24 to",
       "CachingAllocator option max_split_size_mb too small, must be >= 24"},
      {"large_segment_size_mb:10",
       "large_segment_size_mb: found '10', allowed is a whole number from 11",
       "CachingAllocator option large_segment_size_mb must be > 10 MB"},
      {"max_split_size_mb:abc", "found 'abc'", "stoull: max_split_size_mb: 'abc' is not a number"},
      {"max_split_size_mb:99999999999999999999",
       "found '99999999999999999999'",
       "stoull: max_split_size_mb: '99999999999999999999' is out of range"},
      {"max_split_size_mb:2147483648",
       "(no error)",
       "stoi: max_split_size_mb: '2147483648' is out of range",
       kPyTorch29},
      {"garbage_collection_threshold:0",
       "garbage_collection_threshold: found '0', allowed is a number above 0 and below 1",
       "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
      {"garbage_collection_threshold:1",
       "found '1'",
       "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
      {"garbage_collection_threshold:nan",
       "found 'nan'",
       "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"},
      {"garbage_collection_threshold:x", "found 'x'", "stod: garbage_collection_threshold: 'x'"},
      {"per_process_memory_fraction:1.01",
       "per_process_memory_fraction: found '1.01', allowed is a number from 0 to 1",
       "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"},
      {"per_process_memory_fraction:-0.1",
       "found '-0.1'",
       "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"},
      {"expandable_segments:true",
       "expandable_segments: found 'true', allowed is True or False",
       "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'"},
      {"expandable_segments:1",
       "found '1'",
       "Expected a single True/False argument for expandable_segments",
       kPyTorch29},
      {"expandable_segments:[True]",
       "expandable_segments: takes one value, not a list",
       "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got '['"},
      {"backend:jemalloc",
       "backend: found 'jemalloc', allowed is native or cudaMallocAsync",
       "Unknown allocator backend, options are native and cudaMallocAsync"},
      {"pinned_num_register_threads:3",
       "found '3', allowed is a power of two from 1 to 128",
       "Number of register threads has to be power of 2, got 3"},
      {"pinned_num_register_threads:0",
       "found '0'",
       "Number of register threads has to be power of 2, got 0"},
      {"pinned_num_register_threads:256",
       "found '256'",
       "Number of register threads should be less than or equal to 128, got 256"},
      {"pinned_reserve_segment_size_mb:0",
       "found '0', allowed is a whole number from 1",
       "Pinned reserve segment size has to be greater than 0"},
      {"roundup_power2_divisions:3",
       "roundup_power2_divisions: found '3', allowed is a power of two",
       "For roundups, the divisions has to be power of 2"},
      {"roundup_power2_divisions:0",
       "found '0'",
       "For roundups, the divisions has to be power of 2"},
      {"roundup_power2_divisions:[256:3]",
       "found '3', allowed is 0 or a power of two",
       "For roundups, the divisions has to be power of 2 or 0 to disable roundup"},
      {"roundup_power2_divisions:[255:1]",
       "found '255', allowed is a power of two from 1 to 32768 (MiB), or >",
       "For roundups, the intervals have to be power of 2"},
      {"roundup_power2_divisions:[0:1]",
       "found '0'",
       "For roundups, the intervals have to be power of 2"},
      {"roundup_power2_divisions:[256:1",
       "found the end of the text",
       "Index out of bounds in ConfigTokenizer"},
      {"roundup_power2_divisions:[", "found the end", "Expected closing bracket ']'"},
      {"max_split_size_mb",
       "max_split_size_mb: expected ':' after the key, found the end of the text",
       "Index out of bounds in ConfigTokenizer"},
      {"max_split_size_mb:",
       "max_split_size_mb: expected a value, found the end of the text",
       "Index out of bounds in ConfigTokenizer"},
      {"max_split_size:128",
       "unknown key 'max_split_size'; did you mean 'max_split_size_mb'?",
       "Unrecognized key 'max_split_size' in Accelerator allocator config."},
      {"max_split_size:128",
       "did you mean",
       "Unrecognized CachingAllocator option: max_split_size",
       kPyTorch29},
      {",", "expected a key, found ','", "Unrecognized key ',' in Accelerator allocator config."},
  };
  for (const Invalid& setting : settings) {
    EXPECT_THAT(error_of(strict(setting.text, setting.version)), HasSubstr(setting.strict_error))
        << setting.text;
    EXPECT_THAT(error_of(pytorch(setting.text, setting.version)),
                ::testing::StartsWith(setting.pytorch_error))
        << setting.text;
  }
}

TEST(Config, KeysAppearWithTheirRelease) {
  struct Row {
    const char* text;
    const char* key;
    PyTorchVersion before;
    PyTorchVersion since;
  };
  const std::vector<Row> rows{
      {"large_segment_size_mb:32", "large_segment_size_mb", kPyTorch210, kPyTorch211},
      {"per_process_memory_fraction:0.5", "per_process_memory_fraction", kPyTorch29, kPyTorch210},
      {"pinned_reserve_segment_size_mb:1",
       "pinned_reserve_segment_size_mb",
       kPyTorch29,
       kPyTorch210},
      {"throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom", kPyTorch211, kPyTorch212},
      {"pinned_free_catch_all:True", "pinned_free_catch_all", kPyTorch211, kPyTorch212},
      {"pinned_max_round_threshold_mb:1",
       "pinned_max_round_threshold_mb",
       kPyTorch212,
       kPyTorch213},
      {"pinned_max_cached_size_mb:1", "pinned_max_cached_size_mb", kPyTorch212, kPyTorch213},
      {"expandable_segments_reserve:0.5", "expandable_segments_reserve", kPyTorch214, kPyTorch215},
      {"expandable_segments_reserve_by_class:[a:0.5]",
       "expandable_segments_reserve_by_class",
       kPyTorch214,
       kPyTorch215},
  };
  for (const Row& row : rows) {
    EXPECT_TRUE(strict(row.text, row.since)) << row.text;
    EXPECT_TRUE(pytorch(row.text, row.since)) << row.text;
    EXPECT_THAT(error_of(pytorch(row.text, row.before)),
                AllOf(HasSubstr("Unrecognized"), HasSubstr(row.key)));
    const std::string since = "from 2." + std::to_string(row.since.minor) + " on";
    EXPECT_THAT(error_of(strict(row.text, row.before)),
                AllOf(HasSubstr("unknown key"), HasSubstr(row.key), HasSubstr(since)));
  }
}

// --- roundup_power2_divisions --------------------------------------------------------------------

struct DivisionRow {
  const char* text;
  PyTorchVersion version;
  Divisions expected;
};

void expect_divisions(const DivisionRow& row, ConfigDialect dialect) {
  const std::string text = std::string("roundup_power2_divisions:") + row.text;
  const auto parsed = parse_config(text, {.dialect = dialect, .version = row.version});
  ASSERT_TRUE(parsed) << text << ": " << parsed.error();
  EXPECT_EQ(parsed->config.roundup_power2_divisions, row.expected) << text;
  const auto again = strict(to_string(parsed->config), row.version);
  ASSERT_TRUE(again) << to_string(parsed->config) << ": " << again.error();
  EXPECT_EQ(again->config.roundup_power2_divisions, row.expected) << text;
}

TEST(Config, DivisionListsFillAsPyTorchFillsThem) {
  const std::vector<DivisionRow> rows{
      {"4", kPyTorch215, {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
      {"1", kPyTorch29, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
      {"[256:1,512:2,1024:4,>:8]", kPyTorch210, {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8}},
      // Up to 2.9 `>` also takes the last key's own entry.
      {"[256:1,512:2,1024:4,>:8]", kPyTorch29, {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 8, 8, 8, 8, 8, 8}},
      {"[64:8,256:4,1024:4,>:1]", kPyTorch213, {8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1}},
      {"[64:8,256:4,1024:4,>:1]", kPyTorch29, {8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 1, 1, 1, 1, 1, 1}},
      {"[>:4]", kPyTorch213, {0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
      {"[>:4]", kPyTorch29, {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
      {"[1:2]", kPyTorch213, {2}},
      {"[32768:2]", kPyTorch213, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}},
      {"[32768:2,>:4]", kPyTorch213, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}},
      {"[2:0,4:2]", kPyTorch213, {0, 0, 2}},
  };
  for (const DivisionRow& row : rows) {
    expect_divisions(row, ConfigDialect::kStrict);
    expect_divisions(row, ConfigDialect::kPyTorch);
  }
}

TEST(Config, OddDivisionListsAreForPyTorchOnly) {
  const std::vector<const char*> odd{"[512:2,256:1]", "[256:1,256:2]", "[>:8,256:1]", "[65536:2]"};
  for (const char* list : odd) {
    const std::string text = std::string("roundup_power2_divisions:") + list;
    EXPECT_FALSE(strict(text)) << text;
    EXPECT_TRUE(pytorch(text)) << text;
  }
  EXPECT_EQ(pytorch("roundup_power2_divisions:[65536:2]")->config.roundup_power2_divisions[15], 2U);
  EXPECT_TRUE(pytorch("roundup_power2_divisions:[]"));
  EXPECT_THAT(error_of(strict("roundup_power2_divisions:[]")), HasSubstr("expected a list item"));
}

// --- Resets --------------------------------------------------------------------------------------

TEST(Config, EveryReadingResetsFourSettingsAndKeepsTheRest) {
  AllocatorConfig base{.max_split_bytes = 100_MiB,
                       .max_non_split_rounding_bytes = 50_MiB,
                       .large_segment_bytes = 32_MiB,
                       .garbage_collection_threshold = 0.5,
                       .expandable_segments = true,
                       .memory_fraction = 0.5,
                       .text = "old"};
  base.roundup_power2_divisions.fill(4);
  const auto parsed = parse_config("release_lock_on_cudamalloc:True", {.base = base});
  ASSERT_TRUE(parsed);
  const AllocatorConfig& config = parsed->config;
  EXPECT_EQ(config.max_split_bytes, AllocatorConfig::kUnlimited);
  EXPECT_EQ(config.max_non_split_rounding(), 32_MiB);
  EXPECT_EQ(config.roundup_power2_divisions, Divisions{});
  EXPECT_EQ(config.garbage_collection_threshold, 0);
  EXPECT_EQ(config.large_segment_bytes, 32_MiB);
  EXPECT_TRUE(config.expandable_segments);
  EXPECT_EQ(config.memory_fraction, 0.5);
  EXPECT_EQ(config.text, "release_lock_on_cudamalloc:True");
}

TEST(Config, NonSplitRoundingIsResetOnlyFrom211On) {
  const AllocatorConfig base{.max_non_split_rounding_bytes = 50_MiB};
  const auto before = parse_config("", {.version = kPyTorch210, .base = base});
  EXPECT_EQ(before->config.max_non_split_rounding(), 50_MiB);
  const auto since = parse_config("", {.version = kPyTorch211, .base = base});
  EXPECT_EQ(since->config.max_non_split_rounding(), 20_MiB);
}

TEST(Config, AReserveReplacesTheOtherKindOfReserve) {
  const AllocatorConfig base{.expandable_reserve_bytes = 1_GiB};
  const auto parsed =
      parse_config("expandable_segments_reserve:0.25", {.version = kPyTorch215, .base = base});
  ASSERT_TRUE(parsed);
  EXPECT_FALSE(parsed->config.expandable_reserve_bytes);
  EXPECT_EQ(parsed->config.expandable_reserve_fraction, 0.25);
}

// --- Strict only ---------------------------------------------------------------------------------

TEST(ConfigStrict, RefusesWhatPyTorchLetsPass) {
  struct Row {
    const char* text;
    const char* error;
  };
  const std::vector<Row> rows{
      {"max_split_size_mb=128", "unknown key 'max_split_size_mb=128'"},
      {"max_split_size_mb,128", "expected ':' after the key, found ','"},
      {"max_split_size_mb:128;expandable_segments:True", "found '128;expandable_segments'"},
      {"max_split_size_mb:128,", "expected a key, found the end of the text"},
      {"max_split_size_mb:128 ,, backend:native", "expected a key, found ','"},
      {"max_split_size_mb:128MB", "found '128MB'"},
      {"max_split_size_mb:-1", "found '-1'"},
      {"max_split_size_mb:+128", "found '+128'"},
      {"max_split_size_mb:1 28", "found '1 28'"},
      {"max_split_size_mb:17592186044416", "found '17592186044416'"},
      {"max_split_size_mb:128,max_split_size_mb:256", "'max_split_size_mb' is set twice"},
      {"release_lock_on_cudamalloc:True,release_lock_on_hipmalloc:True", "is set twice"},
      {"expandable_segments_reserve:-1", "expandable_segments_reserve: found '-1'"},
      {"expandable_segments_reserve:G", "found 'G'"},
      {"expandable_segments_reserve:inf", "found 'inf'"},
      {"expandable_segments_reserve_by_class:0.5", "expected a list in brackets, found '0.5'"},
      {"expandable_segments_reserve_by_class:[a:x]", "found 'x'"},
      {"expandible_segments:True", "did you mean 'expandable_segments'?"},
      {"Backend:native", "did you mean 'backend'?"},
      {"zzz:1", "unknown key 'zzz'; the keys are backend, large_segment_size_mb,"},
      {"roundup_power2_divisions:[256:1;512:2]", "expected ',' or ']' after a list item"},
      {"roundup_power2_divisions:[256:1:512:2]", "expected ',' or ']' after a list item"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(error_of(strict(row.text)), HasSubstr(row.error)) << row.text;
  }
}

TEST(ConfigStrict, MessagesAreFitToPrint) {
  EXPECT_THAT(error_of(strict("bad\x01key:1")), HasSubstr("'bad?key'"));
  EXPECT_LT(error_of(strict(std::string(100000, 'x') + ":1")).size(), 1000U);
}

// --- PyTorch only --------------------------------------------------------------------------------

TEST(ConfigPyTorch, WarnsOfWhatIsReadOtherwiseThanWritten) {
  struct Row {
    const char* text;
    std::function<bool(const AllocatorConfig&)> holds;
    const char* warning;
  };
  using C = const AllocatorConfig&;
  const std::vector<Row> rows{
      {"max_split_size_mb:128MB",
       [](C c) { return c.max_split_bytes == 128_MiB; },
       "max_split_size_mb: PyTorch reads '128MB' as 128"},
      {"max_split_size_mb:-1",
       [](C c) { return c.max_split_bytes == (UINT64_MAX >> 20U) << 20U; },
       "PyTorch reads '-1' as 18446744073709551615"},
      {"max_split_size_mb,128",
       [](C c) { return c.max_split_bytes == 128_MiB; },
       "max_split_size_mb: found ',' where ':' belongs"},
      {"max_split_size_mb:128:expandable_segments:True",
       [](C c) { return c.expandable_segments; },
       "found ':' where ',' belongs"},
      {"garbage_collection_threshold:0.6,per_process_memory_fraction:0.5x",
       [](C c) { return c.memory_fraction == 0.5; },
       "per_process_memory_fraction: PyTorch reads '0.5x' as 0.5"},
      {"garbage_collection_threshold:0.6",
       [](C c) { return c.garbage_collection_threshold == 0.6; },
       "garbage_collection_threshold has no effect without a memory fraction below 1"},
      {"expandable_segments_reserve:lots",
       [](C c) { return !c.expandable_reserve_fraction && !c.expandable_reserve_bytes; },
       "expandable_segments_reserve: found 'lots'"},
      {"expandable_segments_reserve_by_class:[serving:0.25]",
       [](C) { return true; },
       "expandable_segments_reserve_by_class has no effect"},
      {"backend:cudaMallocAsync,max_split_size_mb:128",
       [](C c) { return c.backend == "cudaMallocAsync"; },
       "backend:cudaMallocAsync does not use the other settings"},
  };
  for (const Row& row : rows) {
    const auto parsed = pytorch(row.text);
    ASSERT_TRUE(parsed) << row.text << ": " << parsed.error();
    EXPECT_TRUE(row.holds(parsed->config)) << row.text;
    EXPECT_THAT(parsed->warnings, ElementsAre(HasSubstr(row.warning))) << row.text;
  }
}

TEST(ConfigPyTorch, LetsHarmlessThingsPass) {
  for (const char* text : {"max_split_size_mb:128,",
                           "max_split_size_mb:+128",
                           "max_split_size_mb:1 28",
                           "max_split_size_mb:64,max_split_size_mb:128",
                           "max_split_size_mb:0128"}) {
    const auto parsed = pytorch(text);
    ASSERT_TRUE(parsed) << text << ": " << parsed.error();
    EXPECT_EQ(parsed->config.max_split_bytes, 128_MiB) << text;
    EXPECT_THAT(parsed->warnings, IsEmpty()) << text;
  }
}

TEST(ConfigPyTorch, HexadecimalFractionsAreRead) {
  EXPECT_EQ(pytorch("per_process_memory_fraction:0x1p-1")->config.memory_fraction, 0.5);
}

TEST(ConfigPyTorch, TheOldParserChecksSeparators) {
  EXPECT_EQ(error_of(pytorch("max_split_size_mb,128", kPyTorch29)),
            "Error parsing CachingAllocator settings, expected :");
  EXPECT_EQ(error_of(pytorch("max_split_size_mb", kPyTorch29)),
            "Error, expecting max_split_size_mb value");
  EXPECT_THAT(error_of(pytorch("garbage_collection_threshold:1", kPyTorch29)),
              HasSubstr("too big, set it 0.0~1.0"));
  const auto parsed = pytorch("max_split_size_mb:-1", kPyTorch29);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->config.max_split_bytes, (UINT64_MAX >> 20U) << 20U);
}

}  // namespace
}  // namespace headroom::memory
