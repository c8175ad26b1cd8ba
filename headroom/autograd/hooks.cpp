#include "headroom/autograd/hooks.h"

#include <string>
#include <utility>

#include "headroom/autograd/internal/node_hooks.h"
#include "headroom/autograd/internal/saved_hooks.h"
#include "headroom/autograd/internal/state.h"
#include "headroom/base/error.h"

namespace headroom::autograd {
namespace internal {
namespace {

std::shared_ptr<const SavedTensorHookPair>& saved_hooks() noexcept {
  static thread_local std::shared_ptr<const SavedTensorHookPair> hooks;
  return hooks;
}

thread_local constinit const char* t_saving_op = "";

}  // namespace

const char* saving_op() noexcept { return t_saving_op; }

SavingOpScope::SavingOpScope(const char* op) noexcept : outer_(std::exchange(t_saving_op, op)) {}
SavingOpScope::~SavingOpScope() { t_saving_op = outer_; }

const std::shared_ptr<const SavedTensorHookPair>& current_saved_hooks() noexcept {
  return saved_hooks();
}

std::shared_ptr<const SavedTensorHookPair> exchange_saved_hooks(
    std::shared_ptr<const SavedTensorHookPair> hooks) noexcept {
  return std::exchange(saved_hooks(), std::move(hooks));
}

void NodeHooks::remove(std::uint64_t id) {
  const auto has_id = [id](const auto& entry) { return entry.first == id; };
  const std::lock_guard lock(mutex);
  std::erase_if(pre, has_id);
  std::erase_if(post, has_id);
  std::erase_if(accumulated, has_id);
}

}  // namespace internal

void HookHandle::remove() {
  if (const auto hooks = hooks_.lock()) hooks->remove(id_);
  hooks_.reset();
}

HookHandle register_hook(const Tensor& tensor, GradientHook hook) {
  const NodePtr node = internal::node_of(tensor);
  if (!node) throw InvalidArgument("register_hook: the tensor needs no gradient");
  return node->hooks().add(&internal::NodeHooks::pre, std::move(hook));
}

HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, AccumulateHook hook) {
  const NodePtr node = internal::node_of(leaf);
  if (!node || !node->is_leaf()) {
    throw InvalidArgument(
        "register_post_accumulate_grad_hook: only a leaf that needs a gradient accumulates one");
  }
  return node->hooks().add(&internal::NodeHooks::accumulated, std::move(hook));
}

SavedTensorHooks::SavedTensorHooks(SavedTensorHookPair pair) {
  if (!pair.pack || !pair.unpack) {
    throw InvalidArgument("SavedTensorHooks: both pack and unpack are needed");
  }
  outer_ =
      internal::exchange_saved_hooks(std::make_shared<const SavedTensorHookPair>(std::move(pair)));
}

SavedTensorHooks::~SavedTensorHooks() { internal::exchange_saved_hooks(std::move(outer_)); }

}  // namespace headroom::autograd
