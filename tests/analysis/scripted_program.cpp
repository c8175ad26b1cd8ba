#include "tests/analysis/scripted_program.h"

#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/config.h"

namespace headroom::analysis::testing {

using memory::DeviceAddress;

namespace {

memory::AllocatorConfig config_of(const std::string& conf) {
  const auto parsed = memory::parse_config(conf);
  if (!parsed) throw Error(parsed.error());
  return parsed->config;
}

class Recorder final : public memory::EventSink {
 public:
  void record(const memory::Event& event) noexcept override {
    device->events.push_back({.action = event.action,
                              .address = event.address,
                              .size_bytes = event.size_bytes,
                              .stream = device::to_integer(event.stream),
                              .time_us = time_us += 10,
                              .stack = stack});
  }
  trace::DeviceTrace* device = nullptr;
  trace::StackId stack = 0;
  std::int64_t time_us = 1'000'000;
};

}  // namespace

struct ScriptedProgram::Parts {
  explicit Parts(const ScriptOptions& given)
      : options(given),
        device(device::MetaDevice::create({.capacity_bytes = given.card_bytes})),
        allocator(*device, {.config = config_of(given.conf)}) {
    trace.settings =
        trace::Value{trace::Value::Dict{{"PYTORCH_CUDA_ALLOC_CONF", trace::Value{given.conf}}}};
    recorder.device = &trace.devices.emplace_back();
    allocator.set_limit(given.limit_bytes);
    allocator.add_sink(recorder);
  }

  trace::StackId stack_of(int line) {
    if (!options.has_stacks) return 0;
    const std::vector<trace::Frame> frames{
        {.name = trace.strings.intern("linear"),
         .file = trace.strings.intern("/opt/lib/python3.12/site-packages/torch/nn/functional.py"),
         .line = 2301},
        {.name = trace.strings.intern("train"),
         .file = trace.strings.intern("/home/me/train.py"),
         .line = line}};
    return trace.stacks.intern(frames);
  }

  ScriptOptions options;
  trace::Trace trace;
  Recorder recorder;
  std::unique_ptr<device::MetaDevice> device;
  memory::CachingAllocator allocator;
  std::vector<DeviceAddress> blocks;
};

ScriptedProgram::ScriptedProgram(const ScriptOptions& options)
    : parts_(std::make_unique<Parts>(options)) {}
ScriptedProgram::~ScriptedProgram() { parts_->allocator.remove_sink(parts_->recorder); }

int ScriptedProgram::alloc(std::uint64_t size_bytes, int line) {
  parts_->recorder.stack = parts_->stack_of(line);
  const auto block = parts_->allocator.try_allocate(size_bytes);
  if (!block) return kFailed;
  parts_->blocks.push_back(*block);
  return static_cast<int>(parts_->blocks.size()) - 1;
}

void ScriptedProgram::free(int block) {
  if (block == kFailed) return;
  parts_->recorder.stack = 0;
  parts_->allocator.free(parts_->blocks[static_cast<std::size_t>(block)]);
}

void ScriptedProgram::free(const std::vector<int>& blocks) {
  for (const int block : blocks) free(block);
}

void ScriptedProgram::mark_step() {
  if (!parts_->options.has_marks) return;
  trace::Trace& trace = parts_->trace;
  trace.has_annotations = true;
  for (const bool is_start : {true, false}) {
    trace.annotations.push_back({.name = trace.strings.intern("Optimizer.step#SGD.step"),
                                 .is_start = is_start,
                                 .time_us = parts_->recorder.time_us + 1});
  }
}

trace::Trace ScriptedProgram::finish() {
  parts_->allocator.remove_sink(parts_->recorder);
  for (const memory::SegmentInfo& info : parts_->allocator.segments()) {
    trace::Segment segment{.address = info.address,
                           .size_bytes = info.size_bytes,
                           .stream = device::to_integer(info.stream),
                           .is_small = info.is_small,
                           .is_expandable = info.is_expandable,
                           .pool = info.pool};
    for (const memory::BlockInfo& block : info.blocks) {
      segment.blocks.push_back({.address = block.address,
                                .size_bytes = block.size_bytes,
                                .requested_bytes = block.requested_bytes,
                                .state = block.state});
    }
    parts_->trace.segments.push_back(std::move(segment));
  }
  return std::move(parts_->trace);
}

Training::Training(ScriptedProgram& program, int layers) : program_(program), layers_(layers) {
  for (int i = 0; i < layers_; ++i) (void)program_.alloc(4_MiB, 5);
}

std::vector<int> Training::step(std::uint64_t scale, bool keeps_graph) {
  std::vector<int> activations{program_.alloc(scale * 1_MiB, 10)};
  for (int i = 0; i < layers_; ++i) activations.push_back(program_.alloc(scale * 1_MiB, 11));
  const int loss = program_.alloc(4, 12);
  program_.free(gradients_);
  gradients_.clear();
  for (int i = 0; i < layers_; ++i) gradients_.push_back(program_.alloc(4_MiB, 13));
  program_.free(loss);
  if (!has_state_) {
    for (int i = 0; i < 2 * layers_; ++i) (void)program_.alloc(4_MiB, 14);
    has_state_ = true;
  }
  const int temporary = program_.alloc(2_MiB, 14);
  program_.free(temporary);
  program_.mark_step();
  if (keeps_graph) return activations;
  program_.free(activations);
  return {};
}

}  // namespace headroom::analysis::testing
