#include "cli/demo.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/memory.h"

#include "cli/account_json.h"
#include "cli/commands.h"
#include "cli/samples.h"
#include "cli/trace_input.h"

namespace headroom::cli {
namespace {

using memory::AnnotationScope;
using memory::Category;
using memory::CategoryScope;

constexpr std::uint64_t kCapacity = 256_MiB;
constexpr std::uint64_t kBatch = 120_MiB;
constexpr std::uint64_t kPiece = 4_MiB;
constexpr int kPieces = 60;
constexpr std::uint64_t kRequest = 128_MiB;
constexpr const char* kRemedy = "expandable_segments:True";

// One of two pieces that stay, near the middle of each batch's memory.
bool is_kept(int piece) { return piece == 14 || piece == 44; }

memory::AllocatorConfig config_of(const std::string& settings) {
  auto parsed = memory::parse_config(settings);
  if (!parsed) throw Error(parsed.error());
  return std::move(parsed->config);
}

// A device and an allocator of our own, so that neither the environment nor what other commands do
// changes a byte.
class Scene {
 public:
  explicit Scene(std::string settings = "")
      : settings_(std::move(settings)),
        device_(device::CpuDevice::create({.capacity_bytes = kCapacity})),
        allocator_(*device_, {.config = config_of(settings_)}) {}

  [[nodiscard]] device::DeviceId device() const { return device_->id(); }

  void fill() {
    const CategoryScope category(Category::kData);
    const AnnotationScope site("batch");
    for (int i = 0; i < 2; ++i) held_.emplace_back(allocator_, kBatch);
  }
  void cut() {
    const CategoryScope category(Category::kActivation);
    const AnnotationScope step("step");
    for (int i = 0; i < kPieces; ++i) {
      const AnnotationScope site(is_kept(i) ? "loss_history" : "forward");
      held_.emplace_back(allocator_, kPiece);
    }
  }
  void free_all_but_two() {
    std::vector<memory::Buffer> kept;
    for (int i = 0; i < kPieces; ++i) {
      if (is_kept(i)) kept.push_back(std::move(held_[static_cast<std::size_t>(i)]));
    }
    held_ = std::move(kept);
  }
  void free_all() { held_.clear(); }
  std::uint64_t trim() { return allocator_.trim(0); }
  std::optional<memory::OutOfMemoryReport> ask() {
    const AnnotationScope site("next");
    try {
      held_.emplace_back(allocator_, kRequest);
    } catch (const memory::OutOfMemory& error) {
      return error.report();
    }
    return std::nullopt;
  }

  [[nodiscard]] DemoStep look(std::string name, std::string sentence) const {
    const auto allocated = allocator_.statistics().allocated_bytes.all.current;
    // Not by address, for where the system puts a segment differs from run to run.
    auto segments = allocator_.segments();
    std::ranges::stable_sort(segments, std::ranges::greater{}, &memory::SegmentInfo::size_bytes);
    return {.name = std::move(name),
            .sentence = std::move(sentence),
            .settings = settings_,
            .allocated_bytes = static_cast<std::uint64_t>(allocated),
            .account = allocator_.account(),
            .segments = std::move(segments)};
  }

 private:
  std::string settings_;
  std::unique_ptr<device::CpuDevice> device_;
  memory::CachingAllocator allocator_;
  std::vector<memory::Buffer> held_;
};

// The requests of the steps up to `ask`, with another setting.
DemoStep play_remedy() {
  Scene scene(kRemedy);
  scene.fill();
  scene.free_all();
  scene.cut();
  scene.free_all_but_two();
  auto failure = scene.ask();
  DemoStep step = scene.look(
      "remedy",
      fmt::format("The same requests with {}, the report's first advice: pages that hold nothing "
                  "went back, and the {} fit.",
                  kRemedy,
                  format_bytes(kRequest)));
  step.shows_segments = true;
  step.failure = std::move(failure);
  return step;
}

nlohmann::ordered_json failure_json(const memory::OutOfMemoryReport& report) {
  nlohmann::ordered_json json;
  json["asked_bytes"] = report.account.asked_bytes;
  json["verdict"] = to_string(report.explanation.verdict);
  json["missing_bytes"] = report.explanation.missing_bytes;
  json["remedies"] = nlohmann::ordered_json::array();
  for (const memory::Remedy& remedy : report.explanation.remedies) {
    json["remedies"].push_back({{"action", remedy.action},
                                {"gain_bytes", remedy.gain_bytes},
                                {"is_enough", remedy.is_enough},
                                {"may_gain_more", remedy.may_gain_more}});
  }
  json["text"] = report.text;
  return json;
}

std::optional<Tour> play_sample(const Context& context) {
  const auto path = find_sample(kTourSample);
  if (!path) {
    context.say(
        fmt::format("{} is not there, so the first act is left out; HEADROOM_SAMPLES names "
                    "the folder it is in",
                    kTourSample));
    return std::nullopt;
  }
  context.progress("replaying a PyTorch recording ...");
  Tour tour = play_tour(read_input(*path, context), kTourSample);
  context.progress("");
  return tour;
}

nlohmann::ordered_json tour_json(const std::optional<Tour>& tour) {
  if (!tour) return nullptr;
  nlohmann::ordered_json json{{"sample", tour->sample},
                              {"allocs", tour->allocs},
                              {"same_addresses", tour->same_addresses},
                              {"segment_mismatches", tour->segment_mismatches},
                              {"verdict", to_string(tour->diagnosis.health)},
                              {"peak_live", tour->diagnosis.peak_live},
                              {"peak_reserved", tour->diagnosis.peak_reserved},
                              {"account", account_json(tour->diagnosis.account)},
                              {"limit_bytes", tour->limit_bytes}};
  json["settings"] = nlohmann::ordered_json::array();
  for (const TourRow& row : tour->rows) {
    json["settings"].push_back(
        {{"conf", row.conf}, {"peak_reserved", row.peak_reserved}, {"fits", row.fits}});
  }
  json["export"] = tour->export_line;
  return json;
}

ExitCode run_demo(const Context& context) {
  Demo demo = play_demo();
  demo.tour = play_sample(context);
  context.print(context.is_json ? demo_json(demo) : draw_demo(demo, context));
  return ExitCode::kDone;
}

RunFunction add_demo(CLI::App& /*app*/) { return run_demo; }

}  // namespace

Demo play_demo() {
  Scene scene;
  Demo demo{.device = scene.device(), .capacity_bytes = kCapacity};
  const auto show = [&](std::string name, std::string sentence) -> DemoStep& {
    return demo.steps.emplace_back(scene.look(std::move(name), std::move(sentence)));
  };
  show("start",
       fmt::format("A device of {}, and an allocator that has asked it for nothing.",
                   format_bytes(kCapacity)));
  scene.fill();
  show("fill",
       fmt::format("Two batches of {}: one segment is taken from the device for each.",
                   format_bytes(kBatch)));
  scene.free_all();
  show("free",
       "Both are freed. Their memory is cached for the next request, so the device, and whatever "
       "monitors it, sees no difference.");
  scene.cut();
  show("reuse",
       fmt::format("{} pieces of {} are cut from the cached segments, not taken from the device.",
                   kPieces,
                   format_bytes(kPiece)));
  scene.free_all_but_two();
  show("fragment", "All but two are freed. Each of the two keeps a whole segment from going back.")
      .shows_segments = true;
  auto failure = scene.ask();
  show("ask",
       fmt::format("{} more do not fit, with only {} live. The error says why:",
                   format_bytes(kRequest),
                   format_bytes(2 * kPiece)))
      .failure = std::move(failure);
  const std::uint64_t in_vain = scene.trim();
  show("trim",
       fmt::format("A trim gives back cached segments that are whole: {}, for none is.",
                   format_bytes(in_vain)));
  scene.free_all();
  show("free", "The last two pieces are freed. Both segments are whole again, and cached.");
  const std::uint64_t returned = scene.trim();
  show("trim", fmt::format("Now a trim gives {} back.", format_bytes(returned)));
  demo.steps.push_back(play_remedy());
  return demo;
}

std::string demo_json(const Demo& demo) {
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["command"] = "demo";
  json["recording"] = tour_json(demo.tour);
  json["device"] = to_string(demo.device);
  json["capacity_bytes"] = demo.capacity_bytes;
  json["steps"] = nlohmann::ordered_json::array();
  for (const DemoStep& step : demo.steps) {
    nlohmann::ordered_json entry;
    entry["name"] = step.name;
    entry["text"] = step.sentence;
    entry["settings"] = step.settings;
    entry["allocated_bytes"] = step.allocated_bytes;
    entry["reserved_bytes"] = step.account.reserved();
    entry["device_used_bytes"] = step.account.used();
    entry["account"] = account_json(step.account);
    entry["out_of_memory"] = nullptr;
    if (step.failure) entry["out_of_memory"] = failure_json(*step.failure);
    json["steps"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

Command demo_command() {
  return {.name = "demo",
          .group = "Start here",
          .summary = "a PyTorch recording replayed, then a small device filled and fragmented",
          .examples =
              "demo  what replay finds, what allocated and reserved mean, what fragmentation does\n"
              "demo --json | jq '.steps[].reserved_bytes'  for programs",
          .add = add_demo};
}

}  // namespace headroom::cli
