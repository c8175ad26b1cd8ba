// What the device layer says about itself: names, ids, statuses.
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "headroom/device/device.h"
#include "headroom/device/types.h"

namespace headroom::device {
namespace {

TEST(DeviceTypes, ReadsAndPrintsDeviceIds) {
  const struct {
    const char* text;
    DeviceId id;
    const char* printed;
  } cases[] = {
      {"cpu", {DeviceKind::kCpu, 0}, "cpu:0"},
      {"cpu:0", {DeviceKind::kCpu, 0}, "cpu:0"},
      {"cpu:12", {DeviceKind::kCpu, 12}, "cpu:12"},
      {"cuda:1", {DeviceKind::kCuda, 1}, "cuda:1"},
      {"meta", {DeviceKind::kMeta, 0}, "meta:0"},
      {"meta:2147483647", {DeviceKind::kMeta, 2147483647}, "meta:2147483647"},
  };
  for (const auto& [text, id, printed] : cases) {
    const auto parsed = parse_device_id(text);
    ASSERT_TRUE(parsed) << text << ": " << parsed.error();
    EXPECT_EQ(*parsed, id) << text;
    EXPECT_EQ(to_string(*parsed), printed);
    EXPECT_EQ(*parse_device_id(printed), id) << "what is printed reads back";
  }
}

TEST(DeviceTypes, RefusesWhatNamesNoDevice) {
  for (const std::string_view text : {"",
                                      ":",
                                      ":0",
                                      "gpu",
                                      "gpu:0",
                                      "cpu:",
                                      "cpu:-1",
                                      "cpu:x",
                                      "cpu:1x",
                                      "cpu: 1",
                                      "cpu:+1",
                                      "cpu:2147483648",
                                      "CPU",
                                      "cpu ",
                                      " cpu",
                                      "cpu:1:2",
                                      "cpu:0x1",
                                      "cpu:1.0"}) {
    const auto parsed = parse_device_id(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error(),
              "'" + std::string(text) + "' names no device: write cpu, cpu:1, cuda:0 or meta");
  }
}

TEST(DeviceTypes, EveryStatusCodeHasATextOfItsOwn) {
  std::set<std::string_view> texts;
  for (int code = 0; code <= static_cast<int>(StatusCode::kFailed); ++code) {
    const std::string_view text = to_string(static_cast<StatusCode>(code));
    EXPECT_NE(text, "?") << code;
    EXPECT_TRUE(texts.insert(text).second) << text;
  }
}

TEST(DeviceTypes, EveryCallHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (std::size_t call = 0; call < kCallCount; ++call) {
    const std::string_view name = to_string(static_cast<Call>(call));
    EXPECT_FALSE(name.empty()) << call;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_STREQ(to_string(Call::kAllocateSegment), "allocate_segment");
  EXPECT_STREQ(to_string(Call::kEnqueueHost), "enqueue_host");
  EXPECT_STREQ(to_string(Call::kMeasure), "measure");
}

TEST(DeviceTypes, PrintsStatuses) {
  const struct {
    DeviceStatus status;
    const char* text;
  } cases[] = {
      {{}, "the device failed"},
      {{.code = StatusCode::kOutOfMemory, .call = "create_pages"}, "create_pages: out of memory"},
      {{.code = StatusCode::kInvalidArgument, .call = "fill", .detail = "a size of zero"},
       "fill: invalid argument: a size of zero"},
      {{.code = StatusCode::kUnknownHandle, .detail = "no segment", .found = 4096},
       "unknown handle: no segment (4,096)"},
      {{.code = StatusCode::kOutOfMemory, .detail = "full", .found = 2048, .bound = 1024},
       "out of memory: full (2,048 against 1,024)"},
      {{.call = "map_pages", .detail = "mmap", .native_code = 12},
       "map_pages: the device failed: mmap [error 12]"},
  };
  for (const auto& [status, text] : cases) EXPECT_EQ(to_string(status), text);
}

}  // namespace
}  // namespace headroom::device
