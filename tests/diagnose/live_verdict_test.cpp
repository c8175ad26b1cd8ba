// One failure, one verdict: the error that the allocator throws, and doctor on the recording of it.
#include <memory>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/diagnose/doctor.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/report/doctor_text.h"
#include "headroom/trace/device_name.h"
#include "headroom/trace/record/history.h"

namespace headroom::diagnose {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Failed {
  trace::Trace trace{};
  std::shared_ptr<const memory::OutOfMemoryReport> report{};
};

Failed run_until_it_fails(memory::Allocator& allocator, std::uint64_t seed) {
  trace::History history;
  history.attach(allocator);
  std::mt19937_64 random(seed);
  std::vector<memory::DeviceAddress> held;
  Failed out;
  while (!out.report) {
    if (!held.empty() && random() % 100 < 40) {
      const std::size_t which = random() % held.size();
      allocator.free(held[which]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    }
    const std::uint64_t size =
        random() % 3 == 0 ? 1 + random() % 200'000 : 1_MiB + random() % 24_MiB;
    const auto block = allocator.try_allocate(size);
    if (block) {
      held.push_back(*block);
    } else {
      out.report = block.error().report;
    }
  }
  out.trace = history.snapshot();
  EXPECT_TRUE(history.stop());
  for (const memory::DeviceAddress address : held) allocator.free(address);
  return out;
}

class LiveVerdict : public ::testing::TestWithParam<const char*> {};

TEST_P(LiveVerdict, IsDoctorsVerdictOnTheRecording) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto device = device::MetaDevice::create({.capacity_bytes = 4_GiB});
    const auto choice = memory::parse_choice(GetParam());
    ASSERT_TRUE(choice);
    const auto allocator = memory::make_allocator(*device, *choice);
    if (seed % 4 != 0) allocator->set_limit(64_MiB + seed * 11_MiB);
    const Failed failed = run_until_it_fails(*allocator, seed);
    const trace::DeviceTrace& recorded = failed.trace.devices.at(0);
    const analysis::TraceIndex index(failed.trace, recorded);
    const Diagnosis diagnosis = examine(index, {.replays = {.threads = 1}});
    const memory::Account& live = failed.report->account;
    EXPECT_EQ(diagnosis.explanation.verdict, failed.report->explanation.verdict)
        << seed << failed.report->text << report::summary_text(diagnosis);
    EXPECT_EQ(diagnosis.account.segment_asked_bytes, live.segment_asked_bytes) << seed;
    EXPECT_EQ(diagnosis.account.limit_bytes, live.limit_bytes) << seed;
    EXPECT_EQ(diagnosis.account.live(), live.live()) << seed;
    EXPECT_EQ(diagnosis.account.device, device->id());
    EXPECT_EQ(trace::device_name(failed.trace, recorded), "meta:0");
    for (const Finding& finding : diagnosis.findings) {
      EXPECT_THAT(report::remedy_text(diagnosis, finding), Not(HasSubstr("PYTORCH_")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Allocators,
                         LiveVerdict,
                         ::testing::Values("backend:paged",
                                           "backend:native",
                                           "backend:native,expandable_segments:True"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace headroom::diagnose
