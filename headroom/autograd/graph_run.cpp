#include "headroom/autograd/internal/graph_run.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "headroom/autograd/internal/leaf.h"
#include "headroom/autograd/internal/node_hooks.h"
#include "headroom/base/error.h"
#include "headroom/tensor/autocast.h"

namespace headroom::autograd::internal {

// The arguments of a node's backward function.
class RunArgs final : public tensor::BackwardArgs {
 public:
  RunArgs(GraphRun& run, Node& node, Tensor grad, std::vector<bool> needs)
      : grads(needs.size()),
        run_(run),
        node_(node),
        grad_(std::move(grad)),
        needs_(std::move(needs)) {}

  const Tensor& grad() override { return grad_; }
  Tensor saved(std::size_t slot) override {
    if (slot >= node_.saved_.size()) return {};
    const Saved& saved = node_.saved_[slot];
    if (!saved.is_packed()) return used_here(saved.unpack(node_));
    // An unpack hook may be expensive: once is enough.
    unpacked_.resize(node_.saved_.size());
    if (!unpacked_[slot].defined()) unpacked_[slot] = saved.unpack(node_);
    return unpacked_[slot];
  }
  [[nodiscard]] bool needs(std::size_t input) const override { return needs_.at(input); }
  void set_grad(std::size_t input, const Tensor& gradient) override {
    if (!needs_.at(input)) return;
    if (grads[input].defined()) {
      throw Error(std::string(node_.name()) + ": its backward set a gradient twice");
    }
    grads[input] = gradient;
  }
  [[nodiscard]] bool owns_grad() const override {
    return is_ours(grad_) && may_write(grad_) && grad_.is_contiguous() && !node_.has_post_hooks();
  }
  [[nodiscard]] Tensor sum_so_far(std::size_t input) override {
    if (!needs_.at(input) || grads[input].defined()) return {};
    OpenSum open;
    Tensor sum = run_.sum_so_far(*node_.inputs_[input], open);
    if (!sum.defined()) return {};
    sums_.push_back({.input = input, .tensor = sum, .open = std::move(open)});
    return sum;
  }
  // Whether the gradient is the sum that was offered, added to.
  [[nodiscard]] bool is_sum(std::size_t input) const {
    return std::any_of(sums_.begin(), sums_.end(), [&](const Offered& sum) {
      return sum.input == input && sum.tensor.is_same(grads[input]);
    });
  }
  // Other threads may add to leaves again.
  void close_sums() {
    for (Offered& sum : sums_) sum.open = {};
  }

  std::vector<Tensor> grads;

 private:
  struct Offered {
    std::size_t input;
    Tensor tensor;
    OpenSum open;
  };

  // Memory of another stream must not be given away before this stream has passed.
  static Tensor used_here(Tensor saved) {
    if (!saved.defined()) return saved;
    if (const Stream now = current_stream(saved.device()); now.id() != saved.storage().stream()) {
      saved.record_stream(now);
    }
    return saved;
  }

  GraphRun& run_;
  std::vector<Offered> sums_{};
  Node& node_;
  Tensor grad_;
  std::vector<bool> needs_;
  std::vector<Tensor> unpacked_{};
};

namespace {

// Work for the end of a backward; the backwards of a thread nest.
class EndOfBackward {
 public:
  EndOfBackward() noexcept : outer_(std::exchange(innermost_, this)) {}
  ~EndOfBackward() {
    innermost_ = outer_;
    for (const auto& action : actions_) action();
  }
  EndOfBackward(const EndOfBackward&) = delete;
  EndOfBackward& operator=(const EndOfBackward&) = delete;

  static void add(std::function<void()> action) {
    if (innermost_ != nullptr) innermost_->actions_.push_back(std::move(action));
  }

 private:
  // NOLINTNEXTLINE(readability-identifier-naming): a private member, as the others are
  static inline thread_local constinit EndOfBackward* innermost_ = nullptr;
  EndOfBackward* outer_;
  std::vector<std::function<void()>> actions_{};
};

class JoinAtEnd {
 public:
  explicit JoinAtEnd(GraphRun& run) : run_(run) {}
  ~JoinAtEnd() { run_.join_streams(); }
  JoinAtEnd(const JoinAtEnd&) = delete;
  JoinAtEnd& operator=(const JoinAtEnd&) = delete;

 private:
  GraphRun& run_;
};

// Not reused before the stream has passed.
void keep_for(const Tensor& gradient, const Stream& stream) {
  if (gradient.storage().stream() != stream.id()) gradient.record_stream(stream);
}

// To what runs on another stream than the one that made it.
void hand_over(const Tensor& gradient, const Stream& to) {
  const Stream from = current_stream(gradient.device());
  if (from.id() == to.id()) return;
  to.wait(from);
  keep_for(gradient, to);
}

bool fits(const Tensor& gradient, const TensorSpec& like) {
  return gradient.shape() == like.shape && gradient.dtype() == like.dtype &&
         &gradient.device() == like.device;
}

void must_fit(const char* who, const Tensor& gradient, const TensorSpec& like) {
  if (fits(gradient, like)) return;
  throw InvalidArgument("backward: " + std::string(who) + " gave a gradient of " +
                        std::string(to_string(gradient.dtype())) + to_string(gradient.shape()) +
                        " on " + to_string(gradient.device().id()) + " for " +
                        std::string(to_string(like.dtype)) + to_string(like.shape) + " on " +
                        to_string(like.device->id()));
}

Tensor run_pre_hooks(NodeHooks* hooks, Tensor grad, const TensorSpec& like) {
  if (hooks == nullptr || !grad.defined()) return grad;
  for (const auto& [id, hook] : hooks->list(&NodeHooks::pre)) {
    Tensor other = hook(grad);
    if (!other.defined()) continue;
    must_fit("a hook", other, like);
    grad = std::move(other);
  }
  return grad;
}

// Under "step/backward", what "step/forward/layer1" made has its gradients as
// "step/backward/layer1".
memory::AnnotationId under(memory::AnnotationId outer, memory::AnnotationId forward) {
  const memory::AnnotationPath outside(outer);
  const memory::AnnotationPath inside(forward);
  auto [o, i] = std::ranges::mismatch(outside.names(), inside.names());
  for (; i != inside.names().end(); ++i) {
    if (*i == to_string(memory::Phase::kForward)) continue;
    outer = memory::intern_annotation(outer, *i);
  }
  return outer;
}

}  // namespace

void at_end_of_backward(std::function<void()> action) { EndOfBackward::add(std::move(action)); }

GraphRun::GraphRun(std::span<const NodePtr> roots,
                   std::span<const NodePtr> targets,
                   RunOptions options)
    : roots_(roots.begin(), roots.end()),
      targets_(targets.begin(), targets.end()),
      options_(options),
      outer_path_(memory::current_context().annotation) {
  discover();
  if (!targets_.empty()) find_wanted();
  check();
}

void GraphRun::discover() {
  const auto find = [this](Node* node) -> Place& {
    const auto [at, is_new] = places_.try_emplace(node);
    if (is_new) {
      at->second.order = found_.size();
      found_.push_back(node);
    }
    return at->second;
  };
  for (const NodePtr& root : roots_) find(root.get());
  for (std::size_t i = 0; i < found_.size(); ++i) {
    for (const NodePtr& input : found_[i]->inputs_) {
      if (input) ++find(input.get()).waits_for;
    }
  }
}

// Backwards through a topological order: inputs come before who uses them.
void GraphRun::find_wanted() {
  std::unordered_map<Node*, std::int64_t> left;
  std::vector<Node*> order;
  for (Node* node : found_) {
    left[node] = places_.at(node).waits_for;
    if (left[node] == 0) order.push_back(node);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const NodePtr& input : order[i]->inputs_) {
      if (input && --left[input.get()] == 0) order.push_back(input.get());
    }
  }
  for (const NodePtr& target : targets_) {
    if (const auto at = places_.find(target.get()); at != places_.end())
      at->second.is_target = true;
  }
  for (auto node = order.rbegin(); node != order.rend(); ++node) {
    Place& place = places_.at(*node);
    place.is_wanted = place.is_target || has_wanted_input(**node);
  }
}

bool GraphRun::is_wanted(const NodePtr& input) const {
  return input && (targets_.empty() || places_.at(input.get()).is_wanted);
}

bool GraphRun::has_wanted_input(const Node& node) const {
  const auto is_it = [this](const NodePtr& input) { return is_wanted(input); };
  return std::any_of(node.inputs_.begin(), node.inputs_.end(), is_it);
}

void GraphRun::check() const {
  for (const Node* node : found_) {
    if (has_wanted_input(*node)) node->check();
  }
}

void GraphRun::make_ready(Node& node, const Place& place) {
  ready_.push({.sequence = node.sequence_, .order = place.order, .node = &node});
}

std::vector<Tensor> GraphRun::run(std::vector<Tensor> gradients) {
  const EndOfBackward end;
  const AutocastPause in_the_types_of_the_forward;
  const JoinAtEnd join(*this);
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    Node& root = *roots_[i];
    const Stream own = stream_of(root);
    hand_over(gradients[i], own);
    const StreamScope stream(own);
    add_to(places_.at(&root).grad, std::move(gradients[i]));
  }
  for (Node* node : found_) {
    if (const Place& place = places_.at(node); place.waits_for == 0) make_ready(*node, place);
  }
  while (!ready_.empty()) {
    Node& node = *ready_.top().node;
    ready_.pop();
    visit(node);
  }
  std::vector<Tensor> out;
  for (const NodePtr& target : targets_) {
    const auto at = captured_.find(target.get());
    out.push_back(at != captured_.end() ? at->second : Tensor());
  }
  return out;
}

// On the stream of its forward, as far as the queue goes: the host only orders streams.
void GraphRun::visit(Node& node) {
  Place& place = places_.at(&node);
  if (!place.is_wanted) return;
  const Stream callers = current_stream(*node.like_.device);
  const Stream own = stream_of(node);
  add_used_stream(own, callers);
  const StreamScope stream(own);
  const memory::ContextScope context({memory::Category::kGradient, path_for(node)});
  Tensor grad = run_pre_hooks(node.hooks_.get(), std::move(place.grad), node.like_);
  // Who waits for this backward uses it on a stream of its own.
  if (grad.defined() && (place.is_target || node.is_leaf())) keep_for(grad, callers);
  if (place.is_target) captured_[&node] = grad;
  if (node.is_leaf()) {
    if (targets_.empty()) give_to_leaf(node, std::move(grad));
    return;
  }
  if (!has_wanted_input(node)) return;
  std::vector<Gradient> grads = differentiate(node, std::move(grad));
  if (!options_.retain_graph) node.free_saved();
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!node.inputs_[i]) continue;
    pass_on(*node.inputs_[i], std::move(grads[i].tensor), grads[i].is_in_sum);
  }
}

void GraphRun::give_to_leaf(Node& node, Tensor grad) {
  if (!grad.defined() && !places_.at(&node).was_added_to) return;
  auto& leaf = static_cast<Leaf&>(node);
  if (grad.defined()) leaf.accumulate(grad);
  grad = {};
  for (const auto& [id, hook] : node.hooks_->list(&NodeHooks::accumulated)) {
    if (const Tensor tensor = leaf.tensor(); tensor.defined()) hook(tensor);
  }
}

Tensor GraphRun::sum_so_far(Node& to, OpenSum& open) {
  // A sum on another stream is for that stream to add to.
  if (GradMode::is_enabled() || stream_of(to).id() != current_stream_id(*to.like_.device))
    return {};
  if (to.is_leaf() && targets_.empty()) return static_cast<Leaf&>(to).open_sum(open);
  const Tensor& sum = places_.at(&to).grad;
  if (!sum.defined() || !is_ours(sum) || !may_write(sum) || !sum.is_contiguous()) return {};
  return sum;
}

std::vector<GraphRun::Gradient> GraphRun::differentiate(Node& node, Tensor grad) {
  std::vector<bool> needs(node.inputs_.size());
  for (std::size_t i = 0; i < needs.size(); ++i) needs[i] = is_wanted(node.inputs_[i]);
  // No gradient came: it is zero, and so are all behind it.
  if (!grad.defined()) return std::vector<Gradient>(needs.size());
  RunArgs args(*this, node, std::move(grad), std::move(needs));
  node.check();
  node.backward_(args);
  args.close_sums();
  for (std::size_t i = 0; i < args.grads.size(); ++i) {
    if (args.grads[i].defined()) must_fit(node.name_, args.grads[i], node.inputs_[i]->like_);
  }
  if (node.hooks_) {
    for (const auto& [id, hook] : node.hooks_->list(&NodeHooks::post)) {
      hook(args.grads, args.grad());
    }
  }
  std::vector<Gradient> out;
  for (std::size_t i = 0; i < args.grads.size(); ++i) {
    const bool is_in_sum = args.grads[i].defined() && args.is_sum(i);
    out.push_back({.tensor = std::move(args.grads[i]), .is_in_sum = is_in_sum});
  }
  return out;
}

void GraphRun::pass_on(Node& to, Tensor grad, bool is_in_sum) {
  Place& place = places_.at(&to);
  if (is_in_sum) {
    place.was_added_to = true;
    grad = {};
  }
  if (place.is_wanted && grad.defined()) {
    const Stream own = stream_of(to);
    hand_over(grad, own);
    const StreamScope stream(own);
    add_to(place.grad, std::move(grad));
  }
  if (--place.waits_for == 0) make_ready(to, place);
}

Stream GraphRun::stream_of(Node& node) {
  if (!node.is_leaf()) return node.stream_;
  std::optional<Stream>& first = places_.at(&node).stream;
  if (!first) first = current_stream(*node.like_.device);
  return *first;
}

void GraphRun::add_used_stream(const Stream& used, const Stream& callers) {
  if (used.id() == callers.id()) return;
  const auto is_it = [&](const Stream& stream) { return stream.id() == used.id(); };
  if (std::none_of(used_streams_.begin(), used_streams_.end(), is_it)) {
    used_streams_.push_back(used);
  }
}

// A stream that cannot be waited for has nothing running.
void GraphRun::join_streams() noexcept {
  for (const Stream& stream : used_streams_) {
    try {
      current_stream(stream.device()).wait(stream);
    } catch (...) {
    }
  }
}

memory::AnnotationId GraphRun::path_for(const Node& node) {
  const auto [at, is_new] = paths_.try_emplace(node.annotation_);
  if (is_new) at->second = under(outer_path_, node.annotation_);
  return at->second;
}

}  // namespace headroom::autograd::internal
