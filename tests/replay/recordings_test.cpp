// The point of replay: on a recording of PyTorch every allocation lands on the recorded address,
// and the peaks are PyTorch's.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "headroom/replay/verify.h"

#include "tests/trace/samples.h"

namespace headroom::replay {
namespace {

using trace::testing::recording;
using trace::testing::recording_names;
using trace::testing::trace_of;

class Recordings : public ::testing::TestWithParam<std::string> {};

TEST_P(Recordings, VerifyToTheByte) {
  const trace::Trace trace = trace_of(recording(GetParam()));
  const Program program = compile(trace, trace.devices[0]);
  const Verification verification = verify(program);
  EXPECT_EQ(verification.address_mismatches, 0U);
  EXPECT_EQ(verification.segment_mismatches, 0U);
  EXPECT_TRUE(verification.has_same_end);
  if (verification.first) {
    ADD_FAILURE() << "event " << verification.first->event << ": " << verification.first->recorded
                  << ", but we did " << verification.first->ours;
  }
  std::printf("%s: %lu allocs, allocated %lu reserved %lu, %.3f s, proved %d, empty %zu\n",
              GetParam().c_str(),
              verification.result.allocs,
              verification.result.peak_allocated,
              verification.result.peak_reserved,
              verification.result.seconds,
              verification.is_version_proved,
              verification.empty_caches.size());
  for (int i = 0; i < 3; ++i) {
    const ReplayResult plain = replay(program, as_recorded(program));
    std::printf("   plain reserved %lu in %.4f s: %.2f M events/s\n", plain.peak_reserved,
                plain.seconds, static_cast<double>(plain.events) / plain.seconds / 1e6);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Recordings, ::testing::ValuesIn(recording_names()), [](const auto& test) {
  return test.param;
});

}  // namespace
}  // namespace headroom::replay
