#include "headroom/tensor/ops/join.h"

#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/internal/sizes.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

void refuse_none(const char* op, const std::vector<Tensor>& tensors) {
  if (tensors.empty()) throw InvalidArgument(std::string(op) + ": there are no tensors to join");
}

struct Catenation {
  Shape shape{};
  DType dtype = DType::kF32;
  std::vector<std::int64_t> starts{};  // of each in the result, along the dimension
};

Catenation catenation_of(const std::vector<Tensor>& tensors, int dim) {
  Catenation out{.shape = tensors.front().shape(), .dtype = tensors.front().dtype()};
  out.shape[dim] = 0;
  for (const Tensor& tensor : tensors) {
    check_same_device("cat", tensors.front(), tensor);
    Shape rest = tensor.shape();
    if (rest.size() == out.shape.size()) rest[dim] = out.shape[dim];
    if (rest != out.shape) {
      throw InvalidArgument("cat: sizes other than of dimension " + std::to_string(dim) +
                            " differ: " + to_string(tensors.front().shape()) + " and " +
                            to_string(tensor.shape()));
    }
    out.starts.push_back(out.shape[dim]);
    const auto sum = size_sum(out.shape[dim], tensor.shape()[dim]);
    if (!sum) {
      throw InvalidArgument("cat: " + to_string(tensor.shape()) + " after " +
                            std::to_string(out.shape[dim]) + " along dimension " +
                            std::to_string(dim) + " is more than 64 bits can count");
    }
    out.shape[dim] = *sum;
    out.dtype = promote_types(out.dtype, tensor.dtype());
  }
  return out;
}

struct Piece {
  std::int64_t start;
  std::int64_t size;
  DType dtype;
};

// As many inputs as there are tensors, so the tape is called by hand.
void record_cat(const std::vector<Tensor>& tensors,
                int dim,
                const Catenation& joined,
                const Tensor& y) {
  std::vector<const Tensor*> inputs;
  std::vector<Piece> pieces;
  bool wanted = false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    inputs.push_back(&tensors[i]);
    pieces.push_back({joined.starts[i], tensors[i].shape()[dim], tensors[i].dtype()});
    wanted = wanted || needs_grad(tensors[i]);
  }
  if (!wanted) return;
  tape().record({.name = "cat",
                 .work = kNoWork,
                 .inputs = inputs,
                 .output = &y,
                 .backward = [dim, pieces = std::move(pieces)](BackwardArgs& b) {
                   for (std::size_t i = 0; i < pieces.size(); ++i) {
                     const Piece& piece = pieces[i];
                     if (!b.needs(i)) continue;
                     const Tensor part = b.grad().narrow(dim, piece.start, piece.size);
                     b.set_grad(i, gradient_as(part, piece.dtype));
                   }
                 }});
}

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int dim) {
  refuse_none("cat", tensors);
  const Tensor& first = tensors.front();
  if (first.dim() == 0) throw InvalidArgument("cat: tensors of no dimensions; use stack");
  dim = normalize_dim("cat", dim, first.shape());
  const Catenation joined = catenation_of(tensors, dim);
  Tensor y = new_output("cat", first, joined.shape, joined.dtype);
  {
    const GradModeScope no_grad(false);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor part = y.narrow(dim, joined.starts[i], tensors[i].shape()[dim]);
      run_element(ElementOp::kCopy, joined.dtype, part, {tensors[i]});
    }
  }
  record_cat(tensors, dim, joined, y);
  return y;
}

Tensor stack(const std::vector<Tensor>& tensors, int dim) {
  refuse_none("stack", tensors);
  std::vector<Tensor> rows;
  rows.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    if (tensor.shape() != tensors.front().shape()) {
      throw InvalidArgument("stack: shapes differ: " + to_string(tensors.front().shape()) +
                            " and " + to_string(tensor.shape()));
    }
    rows.push_back(tensor.unsqueeze(dim));
  }
  return cat(rows, dim < 0 ? dim + rows.front().dim() : dim);
}

}  // namespace headroom
