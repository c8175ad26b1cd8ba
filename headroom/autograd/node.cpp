#include "headroom/autograd/node.h"

#include <limits>
#include <utility>

#include "headroom/autograd/internal/node_hooks.h"
#include "headroom/base/error.h"

namespace headroom::autograd {
namespace {

// Among what is ready, the newest runs first. Leaves come before all: what is complete is put away.
constexpr std::uint64_t kLeafSequence = std::numeric_limits<std::uint64_t>::max();

std::uint64_t next_sequence() noexcept {
  static thread_local constinit std::uint64_t sequence = 0;
  return sequence++;
}

// Nodes whose last user has gone, of the ~Node that is at work on this thread.
thread_local constinit std::vector<NodePtr>* t_dropped = nullptr;

}  // namespace

Node::Node(Parts parts)
    : name_(parts.name),
      inputs_(std::move(parts.inputs)),
      saved_(std::move(parts.saved)),
      backward_(std::move(parts.backward)),
      like_(parts.like),
      stream_(current_stream(*like_.device)),
      sequence_(next_sequence()),
      annotation_(memory::current_context().annotation) {}

Node::Node(const char* name, internal::TensorSpec like, memory::AnnotationId annotation)
    : name_(name),
      like_(like),
      stream_(current_stream(*like_.device)),
      sequence_(kLeafSequence),
      annotation_(annotation),
      hooks_(std::make_shared<internal::NodeHooks>()) {}

Node::~Node() {
  if (t_dropped != nullptr) {
    for (NodePtr& input : inputs_) {
      if (input) t_dropped->push_back(std::move(input));
    }
    return;
  }
  std::vector<NodePtr> dropped = std::move(inputs_);
  t_dropped = &dropped;
  saved_.clear();  // these hold nodes too
  while (!dropped.empty()) {
    const NodePtr last = std::move(dropped.back());
    dropped.pop_back();
  }
  t_dropped = nullptr;
}

std::uint64_t Node::saved_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Saved& saved : saved_) sum += saved.size_bytes();
  return sum;
}

HookHandle Node::register_pre_hook(GradientHook hook) {
  return hooks().add(&internal::NodeHooks::pre, std::move(hook));
}

HookHandle Node::register_post_hook(PostHook hook) {
  return hooks().add(&internal::NodeHooks::post, std::move(hook));
}

internal::NodeHooks& Node::hooks() {
  if (!hooks_) hooks_ = std::make_shared<internal::NodeHooks>();
  return *hooks_;
}

bool Node::has_pre_hooks() const {
  return hooks_ && !hooks_->list(&internal::NodeHooks::pre).empty();
}

bool Node::has_post_hooks() const {
  return hooks_ && !hooks_->list(&internal::NodeHooks::post).empty();
}

void Node::check() const {
  if (is_freed_) {
    throw Error("backward: what " + std::string(name_) +
                " saved was freed by an earlier backward; give that one retain_graph = true, or "
                "compute the forward again");
  }
  for (const Saved& saved : saved_) saved.check(name_);
}

void Node::free_saved() noexcept {
  // A node that saves nothing can run again, as in PyTorch.
  if (saved_.empty()) return;
  saved_.clear();
  backward_ = nullptr;
  is_freed_ = true;
}

}  // namespace headroom::autograd
