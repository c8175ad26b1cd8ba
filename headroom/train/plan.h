// Plans: a training step's memory before the run, exact because it is the step itself on a device
// without memory.
//
// Exact for a run that something watches: a Meter, a recording. Without one the threads' magazines
// keep some small blocks back (256 KiB), which may take a slab page of 2 MiB more.
//
//   const Plan p = plan({.model = {.name = "gpt2"}, .batch = 16}, {.limit_bytes = 24_GiB});
//   p.peak_reserved; p.fits; p.peak_phase;             // "backward"
//   fit({.model = {.name = "gpt2"}}, {.limit_bytes = 24_GiB}).plan.config.batch;
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/device/device.h"
#include "headroom/memory/allocator_choice.h"
#include "headroom/train/meter.h"
#include "headroom/train/step.h"

namespace headroom::train {

struct PlanOptions {
  std::optional<std::uint64_t> limit_bytes{};  // of what the allocator may reserve
  std::string settings{};  // of the allocator, by memory/allocator_choice.h; empty is the default
  int steps = 2;           // the first makes the optimiser's state: the second is what goes on
  bool has_formulas = true;
};

// What is held at the peak under one name: a block of the model.
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
  std::uint64_t peak_reserved = 0;
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

// Throws InvalidArgument as StepRunner does, and for settings that cannot be read.
[[nodiscard]] Plan plan(const StepConfig& config, const PlanOptions& options = {});

struct Fit {
  Plan plan{};  // of the largest batch that fits; with `fits` false, of a batch of 1
  int tried = 0;
  double seconds = 0;
};

// The largest batch under options.limit_bytes, which must be there. What was found was run; one
// example more was run too, and does not fit.
[[nodiscard]] Fit fit(const StepConfig& config, const PlanOptions& options);

// The mildest of none, sqrt and all that fits options.limit_bytes; all when none does.
[[nodiscard]] CheckpointMode mildest_checkpoint(const StepConfig& config,
                                                const PlanOptions& options);

// What plans run on: a device without memory, with addresses for any model.
[[nodiscard]] std::unique_ptr<device::Device> make_plan_device();

// The allocator that settings name. Throws InvalidArgument.
[[nodiscard]] memory::AllocatorChoice parse_settings(const std::string& settings);

}  // namespace headroom::train
