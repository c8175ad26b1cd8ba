#include "headroom/train/internal/planned_run.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "headroom/base/error.h"
#include "headroom/memory/out_of_memory.h"
#include "headroom/train/internal/counting_tape.h"

namespace headroom::train::internal {
namespace {

struct MetaWorld {
  explicit MetaWorld(const PlanOptions& options)
      : device(make_plan_device(options)),
        allocator(memory::make_allocator(*device, parse_settings(options.settings))) {
    allocator->set_limit(options.limit_bytes);
  }

  std::unique_ptr<device::Device> device;
  std::unique_ptr<memory::Allocator> allocator;
};

// Whether a run that has not settled is to be planned further.
bool has_patience(int steps, const Meter& meter, const PlanOptions& options) {
  if (steps < kFewestPlannedSteps) return true;
  return steps < kMostPlannedSteps && meter.changes() < options.most_changes;
}

// Whether a run will go on as it has: after a step that ends in a state in which an earlier one
// ended, with the same allocations at the same addresses, everything happens again.
class Settling {
 public:
  Settling(const memory::Allocator& allocator, Meter& meter)
      : allocator_(allocator), meter_(meter) {}

  // After each step.
  [[nodiscard]] bool has_repeated() {
    Fingerprint print;
    print.add(allocator_.fingerprint()).add(meter_.take_fingerprint());
    return !seen_.insert(print.value()).second;
  }

 private:
  const memory::Allocator& allocator_;
  Meter& meter_;
  std::unordered_set<std::uint64_t> seen_{};
};

// Which change of the memory came in which phase.
class PhaseLog final : public memory::ScopeObserver {
 public:
  explicit PhaseLog(const Meter& meter) : meter_(meter) { memory::add_scope_observer(*this); }
  ~PhaseLog() override { memory::remove_scope_observer(*this); }
  PhaseLog(const PhaseLog&) = delete;
  PhaseLog& operator=(const PhaseLog&) = delete;

  void scope_changed(std::string_view name, bool is_start) noexcept override {
    if (name.starts_with("iteration")) return;
    const auto now = static_cast<std::size_t>(meter_.changes());
    if (is_start) {
      spans_.push_back({.name = std::string(name), .begin = now, .end = now});
      return;
    }
    const auto open = std::find_if(spans_.rbegin(), spans_.rend(), [name](const PhaseSpan& span) {
      return span.name == name;
    });
    if (open != spans_.rend()) open->end = now;
  }
  [[nodiscard]] const std::vector<PhaseSpan>& spans() const noexcept { return spans_; }

 private:
  const Meter& meter_;
  std::vector<PhaseSpan> spans_{};
};

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isdigit(c) != 0;
  });
}

// "h.0" of "h.0.attn.qkv.weight", "fc" of "fc.weight".
std::string layer_of_parameter(const std::string& name) {
  const std::size_t first = name.find('.');
  if (first == std::string::npos) return name;
  const std::size_t second = std::min(name.find('.', first + 1), name.size());
  return is_number(name.substr(first + 1, second - first - 1)) ? name.substr(0, second)
                                                               : name.substr(0, first);
}

struct LiveBlock {
  memory::Category category;
  memory::AnnotationId annotation;
  std::uint64_t bytes;
};
using LiveBlocks = std::unordered_map<memory::DeviceAddress, LiveBlock>;

void apply(const MemoryChange& change, LiveBlocks& live) {
  if (change.is_alloc) {
    live[change.address] = {change.category, change.annotation, change.bytes};
  } else {
    live.erase(change.address);
  }
}

const char* unnamed_layer(memory::Category category) {
  switch (category) {
    case memory::Category::kData:
      return "(batch)";
    case memory::Category::kOptimizerState:
      return "(optimizer)";
    default:
      return "(outside blocks)";
  }
}

// The live bytes, by the blocks of the model in their order; the rest behind.
std::vector<LayerBytes> by_layer(const LiveBlocks& live, const Model& model) {
  std::vector<LayerBytes> out;
  std::map<std::string, std::size_t> places;
  const auto layer_bytes = [&](const std::string& name) -> LayerBytes& {
    const auto [at, is_new] = places.try_emplace(name, out.size());
    if (is_new) out.push_back({.name = name});
    return out[at->second];
  };
  std::unordered_map<memory::DeviceAddress, std::string> parameters;
  for (const auto& [name, tensor] : model.named_tensors()) {
    const std::string layer = layer_of_parameter(name);
    (void)layer_bytes(layer);
    parameters[tensor.storage().address()] = layer;
  }
  // By address, so that the order does not depend on a hash.
  const std::map<memory::DeviceAddress, LiveBlock> sorted(live.begin(), live.end());
  for (const auto& [address, block] : sorted) {
    const auto known = parameters.find(address);
    std::string layer = known != parameters.end()
                            ? known->second
                            : std::string(memory::AnnotationPath(block.annotation).layer());
    if (layer.empty()) layer = unnamed_layer(block.category);
    layer_bytes(layer).categories[static_cast<std::size_t>(block.category)] += block.bytes;
  }
  std::erase_if(out, [](const LayerBytes& one) { return total(one.categories) == 0; });
  return out;
}

// After each change of the last step, from `begin` on.
void draw_timeline(const std::vector<MemoryChange>& log, std::size_t begin, Plan& plan) {
  CategoryBytes now{};
  plan.timeline.reserve(log.size() - begin + 1);
  for (std::size_t i = 0; i < log.size(); ++i) {
    if (i == begin) plan.timeline.push_back(now);
    std::uint64_t& own = now[static_cast<std::size_t>(log[i].category)];
    own += log[i].is_alloc ? log[i].bytes : std::uint64_t{0} - log[i].bytes;
    if (i >= begin) plan.timeline.push_back(now);
  }
  const auto highest = std::ranges::max_element(
      plan.timeline, {}, [](const CategoryBytes& bytes) { return total(bytes); });
  plan.timeline_peak = static_cast<std::size_t>(highest - plan.timeline.begin());
}

std::string phase_at(const std::vector<PhaseSpan>& spans, std::size_t change) {
  for (const PhaseSpan& span : spans) {
    if (change >= span.begin && change < span.end) return span.name;
  }
  return {};
}

// But for taking the batch, which is a change or two before the first.
void keep_phases(const std::vector<PhaseSpan>& spans, std::size_t begin, Plan& plan) {
  for (const PhaseSpan& span : spans) {
    if (span.begin < begin || span.end <= span.begin) continue;
    if (span.name == to_string(memory::Phase::kDataLoading)) continue;
    plan.phases.push_back(
        {.name = span.name, .begin = span.begin - begin, .end = span.end - begin});
  }
}

}  // namespace

RunNumbers quick_run(const StepConfig& config, const PlanOptions& options) {
  MetaWorld world(options);
  Meter meter(*world.allocator);
  Settling settling(*world.allocator, meter);
  RunNumbers out;
  try {
    StepRunner runner(config, *world.allocator);
    while (!out.is_settled && has_patience(out.steps, meter, options)) {
      (void)runner.step();
      ++out.steps;
      if (options.progress) options.progress(out.steps);
      out.is_settled = settling.has_repeated();
    }
  } catch (const memory::OutOfMemory& error) {
    out.shortage = error.what();
  }
  const memory::Statistics statistics = world.allocator->statistics();
  out.peak_allocated = static_cast<std::uint64_t>(statistics.allocated_bytes.all.peak);
  out.peak_reserved = static_cast<std::uint64_t>(statistics.reserved_bytes.all.peak);
  return out;
}

Plan full_run(const StepConfig& config, const PlanOptions& options) {
  MetaWorld world(options);
  CountingTape tape;
  Meter meter(*world.allocator, true);
  Settling settling(*world.allocator, meter);
  const PhaseLog phases(meter);
  StepRunner runner(config, *world.allocator);
  std::size_t begin = 0;
  int steps = 0;
  bool is_settled = false;
  while (!is_settled && has_patience(steps, meter, options)) {
    begin = meter.log().size();
    tape.reset();
    (void)runner.step();
    ++steps;
    if (options.progress) options.progress(steps);
    is_settled = settling.has_repeated();
  }
  const memory::Statistics statistics = world.allocator->statistics();
  Plan out{.config = runner.config(),
           .parameters = runner.model().num_parameters(),
           .peak_allocated = static_cast<std::uint64_t>(statistics.allocated_bytes.all.peak),
           .peak_reserved = static_cast<std::uint64_t>(statistics.reserved_bytes.all.peak),
           .steps = steps,
           .is_settled = is_settled,
           .categories = meter.peak().categories,
           .boundaries = runner.boundary_bytes(),
           .recompute_fraction = tape.recompute_fraction(),
           .limit_bytes = options.limit_bytes};
  const auto peak = static_cast<std::size_t>(meter.peak().change);
  out.peak_phase = phase_at(phases.spans(), peak);
  out.peak_layer = memory::AnnotationPath(meter.peak().annotation).layer();
  LiveBlocks live;
  for (std::size_t i = 0; i <= peak && i < meter.log().size(); ++i) apply(meter.log()[i], live);
  out.layers = by_layer(live, runner.model());
  draw_timeline(meter.log(), begin, out);
  keep_phases(phases.spans(), begin, out);
  return out;
}

CategoryBytes at_end_of_forward(const Plan& plan) {
  CategoryBytes out{};
  for (const PhaseSpan& span : plan.phases) {
    if (span.name == to_string(memory::Phase::kForward)) out = plan.timeline.at(span.end);
  }
  return out;
}

}  // namespace headroom::train::internal
