// Recordings on a PagedAllocator: what it reserves, what it needs, and that its bound holds after
// every op.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/call_costs.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/policy.h"
#include "headroom/trace/file.h"

#include "tests/replay/program_of.h"
#include "tests/trace/samples.h"

namespace headroom::replay {
namespace {

using ::testing::HasSubstr;

std::uint64_t share_and_8_mib(double share, std::uint64_t bytes) {
  return static_cast<std::uint64_t>(share * static_cast<double>(bytes)) + 8_MiB;
}

ReplayResult run_paged(const Program& program, const memory::PagedOptions& paged = {}) {
  ReplayOptions options = with_paged(program, paged);
  options.limit_bytes.reset();
  options.config.memory_fraction = 1;
  options.outside_bytes = 0;
  options.checks_bound = true;
  return replay(program, options);
}

void expect_lean(const Program& program, const ReplayResult& result) {
  EXPECT_TRUE(result.fits);
  EXPECT_TRUE(result.is_start_restored);
  ASSERT_TRUE(result.bound);
  EXPECT_FALSE(result.is_bound_exceeded())
      << "op " << result.bound->op << ": " << result.bound->bound.reserved_bytes << " reserved";
  EXPECT_GE(result.peak_reserved, program.peak_live);
  EXPECT_LE(result.peak_reserved, share_and_8_mib(1.03, program.peak_live));
  EXPECT_EQ(static_cast<std::int64_t>(result.peak_reserved),
            result.statistics.reserved_bytes.all.peak);
  EXPECT_EQ(static_cast<std::int64_t>(program.peak_live), result.statistics.live_bytes.peak);
  EXPECT_EQ(result.statistics.inactive_split.all.peak, 0);
}

class PagedRecordings : public ::testing::TestWithParam<std::string> {};

TEST_P(PagedRecordings, ReserveLittleMoreThanIsLiveAndKeepTheBound) {
  const Program& program = program_of(GetParam());
  expect_lean(program, run_paged(program));
}

TEST_P(PagedRecordings, SurviveALimitOfLittleMoreThanIsLive) {
  const Program& program = program_of(GetParam());
  ReplayOptions options = with_paged(program);
  options.config.memory_fraction = 1;
  options.limit_bytes = share_and_8_mib(1.02, program.peak_live);
  options.outside_bytes = 0;
  const ReplayResult result = replay(program, options);
  EXPECT_TRUE(result.fits);
  EXPECT_LE(result.peak_reserved, *options.limit_bytes);
}

INSTANTIATE_TEST_SUITE_P(Kept,
                         PagedRecordings,
                         ::testing::ValuesIn(trace::testing::recording_names()),
                         [](const auto& test) { return test.param; });

TEST(PagedReplay, TheSmallestLimitIsNearTheLiveBytes) {
  for (const char* name : {"resnet50", "gpt2_partial", "streams"}) {
    const Program& program = program_of(name);
    const auto smallest = smallest_limit(program, with_paged(program));
    ASSERT_TRUE(smallest) << name;
    EXPECT_GE(smallest->bytes, program.peak_live) << name;
    EXPECT_LE(smallest->bytes, share_and_8_mib(1.02, program.peak_live)) << name;
  }
}

TEST(PagedReplay, PrivatePoolsAreReplayed) {
  const auto file = trace::read_trace(HEADROOM_TEST_SNAPSHOTS "/private_pool_streams.pickle.zst");
  ASSERT_TRUE(file);
  for (const trace::DeviceTrace* device : replayable(file->trace)) {
    const Program program = compile_with_empty_caches(file->trace, *device);
    const ReplayResult result = run_paged(program);
    EXPECT_TRUE(result.fits);
    EXPECT_FALSE(result.is_bound_exceeded());
  }
}

// A call costs by its handle, so the same bytes in larger handles cost less.
TEST(PagedReplay, TheDriverIsPricedHandleByHandle) {
  const Program& program = program_of("resnet50");
  const ReplayResult small = run_paged(program, {.page_bytes = 2_MiB, .large_page_bytes = 2_MiB});
  const ReplayResult large = run_paged(program, {.page_bytes = 20_MiB, .large_page_bytes = 20_MiB});
  const device::CallCosts costs = device::h200_call_costs();
  for (const ReplayResult& result : {small, large}) {
    const DriverCalls& calls = result.calls;
    EXPECT_EQ(calls.device_allocs, calls.handles_created);
    EXPECT_GE(calls.handles_mapped, calls.handles_created);
    EXPECT_GE(calls.driver_us * 1e3,
              static_cast<double>(calls.handles_created) * costs.create_pages.price_ns(2_MiB) +
                  static_cast<double>(calls.handles_mapped) * costs.map_pages.price_ns(2_MiB) +
                  static_cast<double>(calls.handles_unmapped) * costs.unmap_pages.price_ns(2_MiB));
    EXPECT_LE(result.driver_us_second_half, calls.driver_us);
  }
  EXPECT_GT(small.calls.handles_created, 4 * large.calls.handles_created);
  EXPECT_GT(small.calls.driver_us, 3 * large.calls.driver_us);
}

TEST(PagedReplay, SaysTheSameEachTimeWithOrWithoutMagazines) {
  const Program& program = program_of("gpt2_varlen");
  const ReplayResult first = run_paged(program);
  const ReplayResult again = run_paged(program);
  EXPECT_EQ(first.peak_reserved, again.peak_reserved);
  EXPECT_EQ(first.calls.driver_us, again.calls.driver_us);
  expect_lean(program, run_paged(program, {.uses_magazines = false}));
}

TEST(PagedReplay, ALimitThatIsTooSmallFails) {
  const Program& program = program_of("resnet50");
  ReplayOptions options = with_paged(program);
  options.limit_bytes = program.peak_live - 100_MiB;
  const ReplayResult result = replay(program, options);
  EXPECT_FALSE(result.fits);
  ASSERT_TRUE(result.first_failure);
  EXPECT_LE(result.peak_reserved, *options.limit_bytes);
  EXPECT_FALSE(smallest_limit(program, with_paged(program, {}, {.card_bytes = 1_GiB})));
}

TEST(PagedReplay, ObserversSeeTheAllocator) {
  const Program& program = program_of("streams");
  ReplayOptions options = with_paged(program);
  const std::size_t at = replay(program, options).peak_op;
  std::uint64_t reserved = 0;
  options.observers = {{.at_op = at, .look = [&](const memory::Allocator& allocator) {
                          EXPECT_TRUE(allocator.settings().paged);
                          EXPECT_FALSE(allocator.check_invariants());
                          reserved = allocator.account().reserved();
                        }}};
  EXPECT_EQ(replay(program, options).peak_reserved, reserved);
}

TEST(PagedPolicy, RunsByName) {
  const Program& program = program_of("resnet50");
  const PolicyResult plain =
      run_policy(program, parse_policy("paged").value(), {.checks_bound = true});
  EXPECT_FALSE(plain.is_model);
  EXPECT_FALSE(plain.verification);
  expect_lean(program, plain.result);
  const PolicyResult loose =
      run_policy(program, parse_policy("paged:cushion=0.5,magazines=0").value());
  EXPECT_GE(loose.result.peak_reserved, plain.result.peak_reserved);
  const auto moves = [](const DriverCalls& calls) {
    return calls.handles_mapped - calls.handles_created;
  };
  EXPECT_LE(moves(loose.result.calls), moves(plain.result.calls)) << "with more room, fewer";
}

TEST(PagedPolicy, WrongSettingsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"paged:page=2", "paged has no setting 'page'; there are page_mb, large_page_mb"},
      {"paged:expandable_segments:True", "no setting 'expandable_segments'"},
      {"paged:page_mb=0", "page_mb: found '0', allowed is a whole number from 1"},
      {"paged:page_mb=2MiB", "found '2MiB'"},
      {"paged:page_mb", "found ''"},
      {"paged:page_mb=40,large_page_mb=20", "large_page_mb: 20MiB is less than page_mb, 40MiB"},
      {"paged:cushion=-1", "a fraction from 0"},
      {"paged:cushion=nan", "a fraction from 0"},
      {"paged:magazines=yes", "0 or 1"},
      {"paged:page_mb=2,page_mb=4", "page_mb is there twice"},
      {"pagedd", "there is no policy 'pagedd'"}};
  for (const auto& [text, part] : cases) {
    const auto policy = parse_policy(text);
    ASSERT_FALSE(policy) << text;
    EXPECT_THAT(policy.error(), HasSubstr(part)) << text;
  }
}

}  // namespace
}  // namespace headroom::replay
