// Saved: a tensor that an op keeps for its backward, with the version it had, or what a pack hook
// made of it.
#pragma once

#include <any>
#include <cstdint>
#include <memory>

#include "headroom/autograd/hooks.h"
#include "headroom/tensor/tape.h"

namespace headroom::autograd {

class Node;
using NodePtr = std::shared_ptr<Node>;

class Saved {
 public:
  Saved() = default;  // a slot that holds nothing
  // `node` made the tensor, if it needs a gradient: needed where the backward is itself recorded.
  // `is_own_output`: the op that saves it made it, as its output. Throws InvalidArgument for a
  // tensor of inference mode.
  Saved(const char* op, const Tensor& tensor, NodePtr node, bool is_own_output, bool is_made);

  // The tensor again, with its history in grad mode. Throws Error when it was written to.
  [[nodiscard]] Tensor unpack(Node& owner) const;
  // The tensor again, without its history. `op` is named where it was written to.
  [[nodiscard]] Tensor value(const char* op) const { return is_empty() ? Tensor() : unpacked(op); }
  // Whether a pack hook took it.
  [[nodiscard]] bool is_packed() const noexcept { return packed_.has_value(); }
  // Throws as unpack would.
  void check(const char* op) const;
  [[nodiscard]] bool is_empty() const noexcept {
    return !tensor_.defined() && !packed_.has_value();
  }
  // Of the tensor it holds; 0 where a pack hook took it.
  [[nodiscard]] std::uint64_t size_bytes() const {
    return tensor_.defined() ? tensor_.size_bytes() : 0;
  }

 private:
  [[nodiscard]] Tensor unpacked(const char* op) const;

  Tensor tensor_{};  // without its history: an op that held its own output would never go away
  std::uint64_t version_ = 0;
  NodePtr node_{};
  bool is_own_output_ = false;
  bool is_made_ = false;  // made by the op only to be saved: its derivative is not known
  Shape shape_{};
  DType dtype_ = DType::kF32;
  std::shared_ptr<const SavedTensorHookPair> hooks_{};
  std::any packed_{};
};

}  // namespace headroom::autograd
