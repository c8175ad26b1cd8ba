#include "headroom/autograd/checkpoint.h"

#include <algorithm>
#include <any>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/autograd/grad_mode.h"
#include "headroom/autograd/internal/graph_run.h"
#include "headroom/autograd/internal/saved_hooks.h"
#include "headroom/autograd/internal/state.h"
#include "headroom/base/error.h"
#include "headroom/tensor/generator.h"
#include "headroom/tensor/region.h"

namespace headroom {
namespace autograd {
namespace {

using internal::TensorSpec;
using RegionFunction = std::function<Tensor(std::span<const Tensor>)>;

// All that is needed has been computed again. Not a std::exception: nobody else's to catch.
struct RecomputedEnough {};

// A node keeps this in the place of a tensor.
struct Placeholder {
  std::size_t index = 0;
  Saved kept{};  // the tensor after all, where the region did not make it
};

// A tensor that the region saved the first time, and what the second made of it.
struct Slot {
  const char* op = "";
  TensorSpec like{};
  std::weak_ptr<const Placeholder> holder{};
  bool is_kept = false;
  Saved again{};

  [[nodiscard]] bool is_needed() const { return !is_kept && !holder.expired(); }
};

// An input of the region. What was a leaf is one again: autocast asks.
struct RegionInput {
  Saved saved{};
  bool needs_grad = false;
  bool is_leaf = false;
  TensorSpec like{};

  [[nodiscard]] Tensor restored() const {
    Tensor out = saved.value("checkpoint");
    if (!needs_grad) return out;
    out = out.detach();
    if (is_leaf) return out.requires_grad_();
    out.impl().grad_state =
        internal::make_state(std::make_shared<Node>(Node::Parts{.name = "input", .like = like}));
    return out;
  }
};

RegionInput region_input(const Tensor& x) {
  if (!x.defined()) return {};
  return {.saved = Saved("checkpoint", x, nullptr, false, false),
          .needs_grad = x.requires_grad(),
          .is_leaf = x.is_leaf(),
          .like = internal::spec_of(x)};
}

// Saved as it is, whatever hooks there are.
Saved saved_plainly(const char* op, const Tensor& tensor) {
  const internal::SavedHooksScope no_hooks(nullptr);
  return {op, tensor, nullptr, false, false};
}

std::string describe_slot(std::string_view op, const TensorSpec& like) {
  return std::string(op) + " saved " + std::string(to_string(like.dtype)) + to_string(like.shape) +
         " on " + to_string(like.device->id());
}

// Sets the generators back, and forth again at its end.
class GeneratorScope {
 public:
  explicit GeneratorScope(const GeneratorStates& states) { states.restore(); }
  ~GeneratorScope() { outer_.restore(); }
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  GeneratorStates outer_ = GeneratorStates::capture();
};

// The device that this thread makes tensors on.
class CurrentDeviceScope {
 public:
  explicit CurrentDeviceScope(device::DeviceId id) : outer_(current_device()) {
    if (!(id == outer_)) set_device(id);
  }
  ~CurrentDeviceScope() {
    if (!(current_device() == outer_)) set_device(outer_);
  }
  CurrentDeviceScope(const CurrentDeviceScope&) = delete;
  CurrentDeviceScope& operator=(const CurrentDeviceScope&) = delete;

 private:
  device::DeviceId outer_;
};

// The streams of the forward, in order with those that the backward is on.
class FormerStreams {
 public:
  explicit FormerStreams(const std::vector<Stream>& former) {
    for (const Stream& stream : former) {
      const Stream now = current_stream(stream.device());
      if (now.id() == stream.id()) continue;
      stream.wait(now);
      entered_.push_back({now, stream});
      scopes_.push_back(std::make_unique<StreamScope>(stream));
    }
  }
  ~FormerStreams() {
    while (!scopes_.empty()) scopes_.pop_back();  // in reverse, as scopes must
  }
  FormerStreams(const FormerStreams&) = delete;
  FormerStreams& operator=(const FormerStreams&) = delete;

  // Work that the backward queues from now on comes after the work that was queued here.
  void join() const {
    for (const Pair& pair : entered_) pair.backward.wait(pair.forward);
  }

 private:
  struct Pair {
    Stream backward;
    Stream forward;
  };
  std::vector<Pair> entered_{};
  std::vector<std::unique_ptr<StreamScope>> scopes_{};
};

std::vector<Stream> streams_of(const std::vector<Tensor>& inputs) {
  std::vector<Stream> out;
  for (const Tensor& x : inputs) {
    if (!x.defined()) continue;
    const auto is_it = [&](const Stream& stream) { return &stream.device() == &x.device(); };
    if (std::none_of(out.begin(), out.end(), is_it)) out.push_back(current_stream(x.device()));
  }
  return out;
}

// One region. It lives as long as a node that saved something in it.
class CheckpointRegion : public std::enable_shared_from_this<CheckpointRegion> {
 public:
  CheckpointRegion(RegionFunction function, const std::vector<Tensor>& inputs)
      : function_(std::move(function)),
        state_(ThreadState::capture()),
        generators_(GeneratorStates::capture()),
        device_(current_device()),
        streams_(streams_of(inputs)) {
    for (const Tensor& x : inputs) inputs_.push_back(region_input(x));
  }

  Tensor run(const std::vector<Tensor>& inputs) {
    const tensor::RegionScope region(/*is_again=*/false);
    const SavedTensorHooks hooks(
        {.pack = [self = shared_from_this()](const Tensor& t) { return self->pack(t); },
         .unpack = [self = shared_from_this()](const std::any& p) { return self->unpack(p); }});
    return function_(inputs);
  }

 private:
  std::any pack(const Tensor& tensor) {
    auto holder = std::make_shared<Placeholder>(Placeholder{.index = slots_.size()});
    const char* const op = internal::saving_op();
    const bool is_kept = !tensor::Region::made(tensor);
    if (is_kept) holder->kept = saved_plainly(op, tensor);
    slots_.push_back(
        {.op = op, .like = internal::spec_of(tensor), .holder = holder, .is_kept = is_kept});
    return std::shared_ptr<const Placeholder>(std::move(holder));
  }

  Tensor unpack(const std::any& packed) {
    const auto& holder = *std::any_cast<const std::shared_ptr<const Placeholder>&>(packed);
    Slot& slot = slots_[holder.index];
    if (slot.is_kept) return holder.kept.value(slot.op);
    if (slot.again.is_empty()) recompute();
    Tensor out = std::exchange(slot.again, {}).value(slot.op);
    // The backward may be on another stream than the one that it was made on.
    if (const Stream now = current_stream(out.device()); now.id() != out.storage().stream()) {
      out.record_stream(now);
    }
    return out;
  }

  void recompute() {
    internal::at_end_of_backward([region = weak_from_this()] {
      if (const auto self = region.lock()) self->drop_again();
    });
    next_ = 0;
    last_ = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].is_needed()) last_ = i;
    }
    try {
      run_again();
    } catch (...) {
      drop_again();
      throw;
    }
    if (next_ <= last_) {
      const std::size_t found = next_;
      drop_again();
      throw Error("checkpoint: computed again, the region saved " + std::to_string(found) +
                  " tensors, where the first time it saved at least " + std::to_string(last_ + 1) +
                  " and " + describe_slot(slots_[found].op, slots_[found].like) +
                  " next; the function must do the same each time");
    }
  }

  void run_again() {
    std::vector<Tensor> inputs;
    for (const RegionInput& input : inputs_) inputs.push_back(input.restored());
    const CurrentDeviceScope device(device_);
    const GeneratorScope generators(generators_);
    const AutocastCacheScope casts;
    ThreadState state = state_;
    state.saved_tensor_hooks = std::make_shared<const SavedTensorHookPair>(
        SavedTensorHookPair{.pack = [this](const Tensor& t) { return pack_again(t); },
                            .unpack = [](const std::any&) { return Tensor(); }});
    const ThreadStateScope thread(state);
    const tensor::RegionScope region(/*is_again=*/true);
    const FormerStreams streams(streams_);
    try {
      (void)function_(inputs);
    } catch (const RecomputedEnough&) {
    }
    streams.join();
  }

  std::any pack_again(const Tensor& tensor) {
    if (next_ > last_) throw RecomputedEnough();
    Slot& slot = slots_[next_];
    const char* const op = internal::saving_op();
    const TensorSpec like = internal::spec_of(tensor);
    if (std::string_view(op) != slot.op || like.shape != slot.like.shape ||
        like.dtype != slot.like.dtype || like.device != slot.like.device) {
      throw Error("checkpoint: computed again, " + describe_slot(op, like) + ", where " +
                  describe_slot(slot.op, slot.like) + " the first time, as tensor " +
                  std::to_string(next_) +
                  " of the region; the function must do the same each time");
    }
    if (slot.is_needed()) slot.again = saved_plainly(op, tensor);
    if (next_++ == last_) throw RecomputedEnough();
    return {};
  }

  void drop_again() {
    for (Slot& slot : slots_) slot.again = {};
  }

  RegionFunction function_;
  ThreadState state_;
  GeneratorStates generators_;
  device::DeviceId device_;
  std::vector<Stream> streams_;
  std::vector<RegionInput> inputs_{};
  std::vector<Slot> slots_{};
  // Of the run that is on: the next tensor to come, and the last that is needed.
  std::size_t next_ = 0;
  std::size_t last_ = 0;
};

}  // namespace

Tensor checkpoint_all(RegionFunction function, const std::vector<Tensor>& inputs) {
  if (!GradMode::is_enabled()) return function(inputs);
  return std::make_shared<CheckpointRegion>(std::move(function), inputs)->run(inputs);
}

}  // namespace autograd

Tensor checkpoint_sequential(std::span<const std::function<Tensor(const Tensor&)>> stages,
                             int segments,
                             const Tensor& x) {
  const auto count = static_cast<int>(stages.size());
  if (segments < 1 || segments > count) {
    throw InvalidArgument("checkpoint_sequential: 1 to " + std::to_string(count) +
                          " segments are wanted, not " + std::to_string(segments));
  }
  const auto run = [](std::span<const std::function<Tensor(const Tensor&)>> part, Tensor h) {
    for (const auto& stage : part) h = stage(h);
    return h;
  };
  Tensor h = x;
  for (int i = 0; i < segments; ++i) {
    const auto begin = static_cast<std::size_t>(std::int64_t{count} * i / segments);
    const auto end = static_cast<std::size_t>(std::int64_t{count} * (i + 1) / segments);
    const auto own = stages.subspan(begin, end - begin);
    if (i + 1 == segments) return run(own, std::move(h));
    // Copies: the caller's list may go before the backward.
    std::vector<std::function<Tensor(const Tensor&)>> part(own.begin(), own.end());
    h = checkpoint([run, part = std::move(part)](const Tensor& in) { return run(part, in); }, h);
  }
  return h;
}

int sqrt_segments(int stages) {
  if (stages < 1) {
    throw InvalidArgument("sqrt_segments: at least 1 stage is wanted, not " +
                          std::to_string(stages));
  }
  return static_cast<int>(std::ceil(std::sqrt(static_cast<double>(stages))));
}

}  // namespace headroom
