// One backward over a graph.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
#include <vector>

#include "headroom/autograd/node.h"

namespace headroom::autograd::internal {

struct OpenSum;

struct RunOptions {
  bool retain_graph = false;
  bool create_graph = false;
};

// Does something when the backward that runs on this thread ends, however it does.
void at_end_of_backward(std::function<void()> action);

class GraphRun {
 public:
  friend class RunArgs;

  // With targets, their gradients are what is wanted, and no leaf is touched. Throws when the
  // graph cannot be run, before anything is computed.
  GraphRun(std::span<const NodePtr> roots, std::span<const NodePtr> targets, RunOptions options);

  // `gradients` go with the roots. Returns those of the targets, undefined where none arrived.
  std::vector<Tensor> run(std::vector<Tensor> gradients);
  // Work that the caller queues from now on comes after the work of this run on other streams.
  void join_streams() noexcept;

 private:
  struct Place {
    std::int64_t waits_for = 0;  // consumers that have not run
    std::uint64_t order = 0;     // of discovery
    bool is_target = false;
    bool is_wanted = true;           // leads to something whose gradient is wanted
    std::optional<Stream> stream{};  // of a leaf: that of the first gradient that came
    bool was_added_to = false;       // of a leaf: an op added to its gradient by itself
    Tensor grad{};
  };
  struct Ready {
    std::uint64_t sequence;
    std::uint64_t order;
    Node* node;
    // The newest first; of equals, the first found.
    friend bool operator<(const Ready& a, const Ready& b) noexcept {
      return a.sequence != b.sequence ? a.sequence < b.sequence : a.order > b.order;
    }
  };

  void discover();
  void find_wanted();
  [[nodiscard]] bool is_wanted(const NodePtr& input) const;
  [[nodiscard]] bool has_wanted_input(const Node& node) const;
  void check() const;
  void make_ready(Node& node, const Place& place);
  void visit(Node& node);
  struct Gradient {
    Tensor tensor{};
    bool is_in_sum = false;  // it is what had been added up for the input already
  };
  [[nodiscard]] std::vector<Gradient> differentiate(Node& node, Tensor grad);
  void give_to_leaf(Node& node, Tensor grad);
  void pass_on(Node& to, Tensor grad, bool is_in_sum);
  [[nodiscard]] Tensor sum_so_far(Node& to, OpenSum& open);
  // Where the gradient of a node is added up and used: on the stream of its forward, and for a
  // leaf, where its gradients come from.
  [[nodiscard]] Stream stream_of(Node& node);
  void add_used_stream(const Stream& used, const Stream& callers);
  // The path under which what `node` makes is allocated.
  [[nodiscard]] memory::AnnotationId path_for(const Node& node);

  std::vector<NodePtr> roots_;
  std::vector<NodePtr> targets_;
  RunOptions options_;
  std::unordered_map<Node*, Place> places_{};
  std::vector<Node*> found_{};  // in order of discovery
  std::priority_queue<Ready> ready_{};
  std::unordered_map<Node*, Tensor> captured_{};
  std::vector<Stream> used_streams_{};  // other than the caller's
  memory::AnnotationId outer_path_ = 0;
  std::unordered_map<memory::AnnotationId, memory::AnnotationId> paths_{};
};

}  // namespace headroom::autograd::internal
