// What replay predicts for other settings, against what PyTorch itself measured for the same
// programs: measured.json has the peaks, and whether a run survived a limit.
#include <cmath>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/replay/async_pool_model.h"
#include "headroom/replay/player.h"

#include "tests/replay/program_of.h"
#include "tests/trace/samples.h"

namespace headroom::replay {
namespace {

nlohmann::json measured() {
  std::ifstream file(HEADROOM_TEST_MEASURED);
  return nlohmann::json::parse(file);
}

ReplayOptions options_for(const Program& program, const std::string& conf) {
  const auto parsed = memory::parse_config(
      conf, {.dialect = memory::ConfigDialect::kPyTorch, .version = memory::kPyTorch211});
  EXPECT_TRUE(parsed) << conf;
  ReplayOptions options = with_settings(program, parsed ? parsed->config : program.config);
  options.version = memory::kPyTorch211;
  return options;
}

TEST(Predictions, PeaksArePyTorchsWithinHalfAPercent) {
  int rows = 0;
  const nlohmann::json all = measured();
  for (const auto& row : all.at("rows")) {
    const auto name = row.at("name").get<std::string>();
    const auto conf = row.at("conf").get<std::string>();
    if (conf.find("cudaMallocAsync") != std::string::npos) continue;
    if (!row.at("ok").get<bool>() || row.at("device_free").get<int>() > 0) continue;
    const Program& program = program_of(name);
    const ReplayOptions options = options_for(program, conf);
    const ReplayResult result = replay_bounds(program, options);
    const auto truth = row.at("peak_reserved").get<double>();
    EXPECT_GE(truth, static_cast<double>(result.peak_reserved_low) * 0.995) << name << " " << conf;
    EXPECT_LE(truth, static_cast<double>(result.peak_reserved_high) * 1.005) << name << " " << conf;
    EXPECT_TRUE(result.fits);
    if (options.config.expandable_segments) {
      EXPECT_EQ(result.peak_reserved, row.at("peak_reserved").get<std::uint64_t>()) << name;
    }
    ++rows;
  }
  EXPECT_GE(rows, 24);
}

// Named a model, and no better than one.
TEST(Predictions, TheModelOfTheDriversPoolIsNear) {
  int rows = 0;
  const nlohmann::json all = measured();
  for (const auto& row : all.at("rows")) {
    if (row.at("conf") != "backend:cudaMallocAsync" || !row.at("ok").get<bool>()) continue;
    const auto name = row.at("name").get<std::string>();
    const AsyncPoolResult result = model_async_pool(program_of(name));
    const auto truth = row.at("peak_reserved").get<double>();
    const double off = static_cast<double>(result.peak_reserved) / truth - 1;
    EXPECT_LE(std::abs(off), name == "gnn_sampled" ? 0.25 : 0.10) << name;
    EXPECT_EQ(result.peak_allocated, row.at("peak_alloc").get<std::uint64_t>()) << name;
    ++rows;
  }
  EXPECT_EQ(rows, 4);
}

TEST(Predictions, SurvivalUnderALimit) {
  const nlohmann::json all = measured();
  std::map<std::string, std::uint64_t> peaks;
  for (const auto& row : all.at("rows")) {
    if (row.at("conf") == "") peaks[row.at("name")] = row.at("peak_alloc").get<std::uint64_t>();
  }
  for (const auto& [name, settings] : all.at("limits").items()) {
    for (const auto& [conf, factors] : settings.items()) {
      for (const auto& [factor, survived] : factors.items()) {
        const Program& program = program_of(name);
        ReplayOptions options = options_for(program, conf == "default" ? "" : conf);
        options.limit_bytes =
            static_cast<std::uint64_t>(std::stod(factor) * static_cast<double>(peaks.at(name)));
        options.stop_at_failure = true;
        for (const auto order :
             {device::AddressOrder::kDescending, device::AddressOrder::kAscending}) {
          options.order = order;
          EXPECT_EQ(replay(program, options).fits, survived.get<bool>())
              << name << " " << conf << " " << factor;
        }
      }
    }
  }
}

}  // namespace
}  // namespace headroom::replay
