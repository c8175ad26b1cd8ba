#include "cli/train/train.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/device/registry.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/report/bar.h"
#include "headroom/trace/file.h"
#include "headroom/trace/record/history.h"
#include "headroom/train/data.h"
#include "headroom/train/retry.h"

#include "cli/commands.h"
#include "cli/input/step_options.h"
#include "cli/input/trace_input.h"
#include "cli/output/output_file.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct TrainArguments {
  StepArguments step{};
  std::string device = "cpu";
  std::int64_t steps = 20;
  bool retries = false;
  std::string record{};
  std::string data{};
  bool force = false;
};

// A device by name; meta is one without memory, of our own.
device::Device& find_train_device(const std::string& name, std::unique_ptr<device::Device>& own) {
  if (name == "meta") {
    own = train::make_plan_device();
    return *own;
  }
  const auto found = device::registry().find(name);
  if (!found) throw UsageError(fmt::format("--device: {}; meta is always there", found.error()));
  if ((*found)->id().kind == device::DeviceKind::kCuda) {
    throw UsageError("--device: use cpu or meta; training does not run yet on " + name);
  }
  return **found;
}

std::string live_line(const train::StepRunner& runner,
                      const TrainReport& report,
                      const report::Terminal& terminal) {
  const memory::Statistics now = runner.allocator().statistics();
  const auto size = [](const memory::Stat& stat) {
    return format_bytes(static_cast<std::uint64_t>(stat.current));
  };
  const double done = static_cast<double>(report.losses.size()) / static_cast<double>(report.steps);
  return fmt::format("[{}] {}/{}  loss {:.4f}  allocated {}  peak {}  reserved {}  {:.0f} ms",
                     report::bar(done, 16, report::Tone::kPlain, terminal),
                     report.losses.size(),
                     report.steps,
                     report.losses.back(),
                     size(now.allocated_bytes.all),
                     format_bytes(static_cast<std::uint64_t>(now.allocated_bytes.all.peak)),
                     size(now.reserved_bytes.all),
                     report.step_ms.back());
}

void run_steps(train::StepRunner& runner,
               const TrainArguments& typed,
               const train::PlanOptions& options,
               TrainReport& report,
               const Context& context) {
  for (std::int64_t i = 0; i < typed.steps; ++i) {
    const auto begin = Clock::now();
    const train::StepResult result =
        typed.retries ? train::with_retry(runner, report.told, options) : runner.step();
    report.losses.push_back(result.loss());
    report.step_ms.push_back(
        std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    context.progress(live_line(runner, report, context.err));
  }
}

// A run is recorded as it happens, which only our own format can be.
void check_record_name(const std::string& path) {
  const auto target = trace::target_of(path);
  if (path.empty() || (target && target->format == trace::Format::kHrt && !target->is_packed)) {
    return;
  }
  const std::string base = std::filesystem::path(path).replace_extension().string();
  throw UsageError(
      fmt::format("--record: '{}' does not end in .hrt, the format of a recording; name it "
                  "{}.hrt, and 'convert' makes .pickle, .csv and others of it",
                  path,
                  base.ends_with('/') ? base + "run" : without_endings(base)));
}

std::unique_ptr<trace::History> start_recording(const TrainArguments& typed,
                                                memory::Allocator& allocator) {
  if (typed.record.empty()) return nullptr;
  check_output_file(typed.record, typed.force);
  auto history = std::make_unique<trace::History>(
      trace::HistoryOptions{.file = typed.record, .overwrite = typed.force});
  history->attach(allocator);
  return history;
}

// Fills in the measured peaks, whether or not memory ran out on the way.
void read_peaks(const memory::Allocator& allocator,
                const train::Plan& planned,
                const train::Meter& meter,
                TrainReport& report) {
  const memory::Statistics statistics = allocator.statistics();
  report.peak_allocated = static_cast<std::uint64_t>(statistics.allocated_bytes.all.peak);
  report.peak_reserved = static_cast<std::uint64_t>(statistics.reserved_bytes.all.peak);
  report.planned_allocated = planned.peak_allocated;
  report.planned_reserved = planned.peak_reserved;
  report.categories = meter.peak().categories;
}

// Fills in the report; when memory runs out that is in it.
void train_on(memory::Allocator& allocator,
              const TrainArguments& typed,
              const train::PlanOptions& options,
              const train::Plan& planned,
              TrainReport& report,
              const Context& context) {
  const train::Meter meter(allocator);
  const std::unique_ptr<trace::History> history = start_recording(typed, allocator);
  try {
    std::unique_ptr<nn::Dataset> data;
    if (!typed.data.empty()) {
      data = train::file_data(typed.data, train::check_model(report.config.model));
    }
    train::StepRunner runner(report.config, allocator, std::move(data));
    run_steps(runner, typed, options, report, context);
    report.micro_batch = runner.micro_batch();
    report.account = allocator.account();
  } catch (const memory::OutOfMemory& error) {
    context.progress("planning what would fit");
    report.remedies = train::planned_remedies(report.config, options);
    report.shortage = train::report_text(error.report(), report.remedies);
  }
  context.progress("");
  read_peaks(allocator, planned, meter, report);
  if (history) {
    if (const auto done = history->stop(); !done) throw Error(to_string(done.error()));
    report.record = typed.record;
  }
}

ExitCode run_train(const TrainArguments& typed, const Context& context) {
  train::StepConfig config = step_config(typed.step);
  train::PlanOptions options = plan_options(typed.step);
  if (typed.steps < 1) {
    throw UsageError(fmt::format("--steps: {} is too small; use 1 or more", typed.steps));
  }
  check_record_name(typed.record);
  std::unique_ptr<device::Device> own;
  device::Device& device = find_train_device(typed.device, own);
  options.device = &device;
  options.has_formulas = false;
  if (is_auto_checkpoint(typed.step)) {
    config.checkpoint = train::mildest_checkpoint(config, options).mode;
  }
  const train::Plan planned = train::plan(config, options);
  TrainReport report{.config = config,
                     .device = to_string(device.id()),
                     .parameters = planned.parameters,
                     .steps = typed.steps,
                     .is_auto = is_auto_checkpoint(typed.step),
                     .limit_bytes = options.limit_bytes,
                     .is_planned_to_fit = planned.fits,
                     .options = other_options(typed.step)};
  if (typed.device != "cpu") report.options += " --device " + typed.device;
  const auto allocator = memory::make_allocator(device, train::parse_settings(options.settings));
  allocator->set_limit(options.limit_bytes);
  train_on(*allocator, typed, options, planned, report, context);
  context.print(context.is_json ? train_json(report) : draw_train(report, context));
  return report.fits() ? ExitCode::kDone : ExitCode::kBadNews;
}

RunFunction add_train(CLI::App& app) {
  auto typed = std::make_shared<TrainArguments>();
  add_step_options(app, typed->step);
  app.add_option("--device", typed->device, "cpu (default), or meta, which computes nothing")
      ->type_name("DEVICE")
      ->group(kOptionsGroup);
  app.add_option("--steps", typed->steps, "training steps (default 20)")
      ->type_name("N")
      ->group(kOptionsGroup);
  app.add_flag(
         "--retry", typed->retries, "when memory runs out, use smaller micro-batches and go on")
      ->group(kOptionsGroup);
  app.add_option(
         "--data",
         typed->data,
         "a file to learn from: any bytes for gpt2-tiny, IDX images for mlp (default: made up)")
      ->type_name("FILE")
      ->group(kOptionsGroup);
  app.add_option("--record", typed->record, "record every allocation in this file")
      ->type_name("FILE.hrt")
      ->group(kOptionsGroup);
  app.add_flag("-f,--force", typed->force, "overwrite the recording if it exists")
      ->group(kOptionsGroup);
  return [typed](const Context& context) { return run_train(*typed, context); };
}

}  // namespace

Command train_command() {
  return {.name = "train",
          .group = "Train",
          .summary = "train a model within a memory limit, and show where the memory goes",
          .examples =
              "train gpt2-tiny --steps 50  watch the loss and the memory\n"
              "train deepnet --batch 512 --limit 90MiB --checkpoint auto  within a limit\n"
              "train deepnet --batch 512 --limit 90MiB --retry  go on with smaller micro-batches\n"
              "train gpt2-tiny --record run.hrt  record it; then: info run.hrt",
          .add = add_train};
}

}  // namespace headroom::cli
