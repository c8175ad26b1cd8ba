// Plans: the memory of a training run before the run, exact because it is the run itself on a
// device without memory: step after step until the allocator is in a state that it was in before,
// from which on everything repeats itself. So a plan holds for any number of steps.
//
// Exact for a run whose memory comes from one thread, whether or not something watches it. Every
// further thread keeps some small blocks back (256 KiB), which may take a slab page of 2 MiB more.
//
//   const Plan p = plan({.model = {.name = "gpt2"}, .batch = 16}, {.limit_bytes = 24_GiB});
//   p.peak_reserved; p.fits; p.peak_phase;             // "backward"
//   fit({.model = {.name = "gpt2"}}, {.limit_bytes = 24_GiB}).plan.config.batch;
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/train/meter.h"
#include "headroom/train/step.h"

namespace headroom::train {

// The most steps that are planned if the allocator does not return to an earlier state; the plan
// then holds for that number of steps. Planning one step of a huge model takes seconds, so
// PlanOptions::most_changes is a second bound.
inline constexpr int kMostPlannedSteps = 256;
inline constexpr int kFewestPlannedSteps = 4;

struct PlanOptions {
  std::optional<std::uint64_t> limit_bytes{};  // of what the allocator may reserve
  std::string settings{};  // of the allocator, by memory/allocator_choice.h; empty is the default
  // Where the run will be: a plan keeps to its capacity. Without one there is room for anything.
  const device::Device* device = nullptr;
  // The backend to plan for where no device is given: its workspaces, its granularity. Without one,
  // the processor.
  std::optional<device::BackendProfile> profile{};
  bool has_formulas = true;
  // After this number of allocations and frees no further step is planned.
  std::uint64_t most_changes = 2'000'000;
  // Called with the number of steps that were planned so far, in one run; a plan may need several.
  std::function<void(int steps)> progress{};
};

// The bytes at the peak under one name: a block of the model.
struct LayerBytes {
  std::string name{};
  CategoryBytes categories{};
};

// A part of the step, as a range of the timeline.
struct PhaseSpan {
  std::string name{};  // "forward"
  std::size_t begin = 0;
  std::size_t end = 0;
};

// A formula from the books, beside what was planned.
struct Formula {
  std::string text{};  // "16 P + B L a"
  std::uint64_t bytes = 0;
  double error = 0;  // of the planned peak; 0.1 is 10 % too much
};

struct Plan {
  StepConfig config{};  // with the defaults filled in
  std::int64_t parameters = 0;
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_reserved = 0;        // of the whole run, however many steps it has
  int steps = 0;                          // that were planned
  bool is_settled = true;                 // everything repeats itself from there on
  CategoryBytes categories{};             // at the peak; they add up to peak_allocated
  std::string peak_phase{};               // "backward"
  std::string peak_layer{};               // "h.11"; empty outside of the blocks
  std::vector<LayerBytes> layers{};       // at the peak, in the order of the model
  std::vector<CategoryBytes> timeline{};  // of the last step, after each allocation and free
  std::size_t timeline_peak = 0;
  std::vector<PhaseSpan> phases{};
  std::vector<std::uint64_t> boundaries{};  // bytes into the first block and out of each
  std::vector<Formula> formulas{};
  double recompute_fraction = 0;  // arithmetic of the forward that is done twice
  std::optional<std::uint64_t> limit_bytes{};
  bool fits = true;
  std::string shortage{};  // the report of what ran out, where it does not fit
  double seconds = 0;      // that the plan took
};

// Under a limit the run is planned under that limit: `fits` says whether it reaches its end, and
// where it does the peaks are its own. Where it does not, they are those of a run that is free to
// take what it needs. Throws InvalidArgument as StepRunner does, and for settings that cannot be
// read; Error where planning itself fails.
[[nodiscard]] Plan plan(const StepConfig& config, const PlanOptions& options = {});

struct Fit {
  Plan plan{};  // of the largest batch that fits; with `fits` false, of a batch of 1
  std::uint64_t next_reserved = 0;  // what one example more would take
  int tried = 0;
  double seconds = 0;
};

// The largest batch whose planned peak is at most options.limit_bytes, which must be there: so it
// never has to give cached memory back. One example more takes more than the limit.
[[nodiscard]] Fit fit(const StepConfig& config, const PlanOptions& options);

struct CheckpointChoice {
  CheckpointMode mode = CheckpointMode::kNone;
  bool fits = false;
  std::uint64_t peak_reserved = 0;
};

// The mildest of none, sqrt and all that fits options.limit_bytes; where none does, the one that
// takes the least.
[[nodiscard]] CheckpointChoice mildest_checkpoint(const StepConfig& config,
                                                  const PlanOptions& options);

// The device of a plan, without memory. It has the capacity and the bounds of options.device,
// or without one, room for any model and the answers of options.profile.
[[nodiscard]] std::unique_ptr<device::Device> make_plan_device(const PlanOptions& options = {});

// The allocator that settings name. Throws InvalidArgument.
[[nodiscard]] memory::AllocatorChoice parse_settings(const std::string& settings);

}  // namespace headroom::train
