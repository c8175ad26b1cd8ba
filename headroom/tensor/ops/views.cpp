// Views: other shapes and strides over the same storage. Nothing is saved for backward.
#include <algorithm>

#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/internal/sizes.h"
#include "headroom/tensor/ops/creation.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

// Puts a number for -1.
Shape complete(const char* op, Shape shape, std::int64_t numel) {
  const auto wrong = [&] {
    return InvalidArgument(std::string(op) + ": " + std::to_string(numel) +
                           " elements do not make " + to_string(shape));
  };
  int open = -1;
  Shape known;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1) {
      known.push_back(shape[i]);
    } else if (std::exchange(open, i) != -1) {
      throw InvalidArgument(std::string(op) + ": more than one size is -1 in " + to_string(shape));
    }
  }
  const std::int64_t rest = checked_numel(op, known);
  if (open == -1) {
    if (rest != numel) throw wrong();
    return shape;
  }
  if (rest == 0 || numel % rest != 0) throw wrong();
  shape[open] = numel / rest;
  return shape;
}

// Strides that read the same elements in the same order under another shape, if there are any:
// each run of dimensions that lie one behind the other may be cut anew. False where there are none.
bool strides_for(const Tensor& x, const Shape& to, Strides& out) {
  if (x.numel() == 0 || x.is_contiguous()) {
    out = contiguous_strides(to);
    return true;
  }
  out = Dims::filled(to.size(), 1);
  int at = to.size() - 1;
  std::int64_t base = x.strides().back();
  std::int64_t run = 1;    // elements of x's current run
  std::int64_t taken = 1;  // of them, covered by `to`
  for (int i = x.dim() - 1; i >= 0; --i) {
    run *= x.shape()[i];
    const bool ends = i == 0 || (x.shape()[i - 1] != 1 && x.strides()[i - 1] != run * base);
    if (!ends) continue;
    while (at >= 0 && (taken < run || to[at] == 1)) {
      out[at] = taken * base;
      taken *= to[at];
      --at;
    }
    if (taken != run) return false;
    if (i > 0) base = x.strides()[i - 1];
    run = 1;
    taken = 1;
  }
  return at == -1;
}

Tensor view_as(const char* name, const Tensor& x, const Shape& shape, const Strides& strides) {
  return record_view(
      name, x, new_view(x, shape, strides, x.offset()), [own = x.shape()](BackwardArgs& b) {
        b.set_grad(0, b.grad().reshape(own));
      });
}

// A view that leaves elements out: what was left out has no gradient.
template <class Cut>
Tensor record_cut(const char* name, const Tensor& x, const Tensor& y, Cut cut) {
  return record_view(name, x, y, [own = x.shape(), cut](BackwardArgs& b) {
    const Tensor grad = new_output("zeros", b.grad(), own, b.grad().dtype());
    run_element(ElementOp::kCopy, grad.dtype(), grad, {Scalar(0)});
    refuse_second_derivative("slice", {&b.grad()});
    run_element(ElementOp::kCopy, grad.dtype(), cut(grad), {b.grad()});
    b.set_grad(0, grad);
  });
}

Tensor sliced(const Tensor& x, int dim, std::int64_t start, std::int64_t count, std::int64_t step) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  const std::int64_t offset = x.offset() + (count > 0 ? start * strides[dim] : 0);
  shape[dim] = count;
  if (count > 1) strides[dim] *= step;  // else it may be longer than any storage
  return new_view(x, shape, strides, offset);
}

Tensor selected(const Tensor& x, int dim, std::int64_t index) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  const std::int64_t offset = x.offset() + index * strides[dim];
  shape.erase(dim);
  strides.erase(dim);
  return new_view(x, shape, strides, offset);
}

void refuse_no_dims(const char* op, const Tensor& x) {
  if (x.dim() > 0) return;
  throw InvalidArgument(std::string(op) + ": a tensor of no dimensions cannot be cut");
}

}  // namespace

Tensor Tensor::view(Shape shape) const {
  shape = complete("view", shape, numel());
  Strides strides;
  if (!strides_for(*this, shape, strides)) {
    throw InvalidArgument("view: the strides " + to_string(this->strides()) + " of " +
                          to_string(this->shape()) + " do not allow " + to_string(shape) +
                          "; use reshape");
  }
  return view_as("view", *this, shape, strides);
}

Tensor Tensor::reshape(const Shape& wanted) const {
  const Shape to = complete("reshape", wanted, numel());
  if (to == shape()) return *this;
  Strides strides;
  if (strides_for(*this, to, strides)) return view_as("reshape", *this, to, strides);
  return clone().view(to);
}

Tensor Tensor::transpose(int a, int b) const {
  a = normalize_dim("transpose", a, shape());
  b = normalize_dim("transpose", b, shape());
  Shape to = shape();
  Strides strides = this->strides();
  std::swap(to[a], to[b]);
  std::swap(strides[a], strides[b]);
  return record_view(
      "transpose", *this, new_view(*this, to, strides, offset()), [a, b](BackwardArgs& args) {
        args.set_grad(0, args.grad().transpose(a, b));
      });
}

Tensor Tensor::t() const {
  if (dim() != 2) {
    throw InvalidArgument("t: a matrix is wanted, not " + to_string(shape()));
  }
  return transpose(0, 1);
}

Tensor Tensor::permute(const Dims& order) const {
  if (order.size() != dim()) {
    throw InvalidArgument("permute: " + to_string(order) + " does not order the dimensions of " +
                          to_string(shape()));
  }
  Shape to = shape();
  Strides strides = this->strides();
  Dims inverse = Dims::filled(dim(), -1);
  for (int i = 0; i < dim(); ++i) {
    const int from = normalize_dim("permute", order[i], shape());
    if (inverse[from] != -1) {
      throw InvalidArgument("permute: a dimension comes twice in " + to_string(order));
    }
    inverse[from] = i;
    to[i] = shape()[from];
    strides[i] = this->strides()[from];
  }
  return record_view(
      "permute", *this, new_view(*this, to, strides, offset()), [inverse](BackwardArgs& b) {
        b.set_grad(0, b.grad().permute(inverse));
      });
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  refuse_no_dims("select", *this);
  dim = normalize_dim("select", dim, shape());
  const std::int64_t size = shape()[dim];
  if (index < -size || index >= size) {
    throw InvalidArgument("select: index " + std::to_string(index) + " is out of range for size " +
                          std::to_string(size) + " of dimension " + std::to_string(dim));
  }
  if (index < 0) index += size;
  return record_cut("select", *this, selected(*this, dim, index), [dim, index](const Tensor& grad) {
    return selected(grad, dim, index);
  });
}

Tensor Tensor::slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step) const {
  refuse_no_dims("slice", *this);
  dim = normalize_dim("slice", dim, shape());
  if (step <= 0) {
    throw InvalidArgument("slice: the step must be positive, not " + std::to_string(step));
  }
  const std::int64_t size = shape()[dim];
  const auto bound = [size](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  start = bound(start);
  end = std::max(bound(end), start);
  const std::int64_t count = divide_up(end - start, step);
  return record_cut("slice",
                    *this,
                    sliced(*this, dim, start, count, step),
                    [dim, start, count, step](const Tensor& grad) {
                      return sliced(grad, dim, start, count, step);
                    });
}

Tensor Tensor::narrow(int dim, std::int64_t start, std::int64_t length) const {
  refuse_no_dims("narrow", *this);
  dim = normalize_dim("narrow", dim, shape());
  const std::int64_t size = shape()[dim];
  if (start < 0 || length < 0 || start > size || length > size - start) {
    throw InvalidArgument("narrow: " + std::to_string(length) + " from " + std::to_string(start) +
                          " on is out of range for size " + std::to_string(size) +
                          " of dimension " + std::to_string(dim));
  }
  return slice(dim, start, start + length);
}

Tensor Tensor::unsqueeze(int dim) const {
  const int rank = this->dim() + 1;
  if (dim < -rank || dim >= rank) {
    throw InvalidArgument("unsqueeze: dimension " + std::to_string(dim) + " does not fit into " +
                          to_string(shape()));
  }
  if (dim < 0) dim += rank;
  Shape to = shape();
  Strides strides = this->strides();
  strides.insert(dim, dim < this->dim() ? to[dim] * strides[dim] : 1);
  to.insert(dim, 1);
  return view_as("unsqueeze", *this, to, strides);
}

Tensor Tensor::squeeze() const {
  Shape to;
  Strides strides;
  for (int i = 0; i < dim(); ++i) {
    if (shape()[i] == 1) continue;
    to.push_back(shape()[i]);
    strides.push_back(this->strides()[i]);
  }
  return view_as("squeeze", *this, to, strides);
}

Tensor Tensor::squeeze(int dim) const {
  dim = normalize_dim("squeeze", dim, shape());
  Shape to = shape();
  Strides strides = this->strides();
  if (this->dim() > 0 && to[dim] == 1) {
    to.erase(dim);
    strides.erase(dim);
  }
  return view_as("squeeze", *this, to, strides);
}

Tensor Tensor::expand(const Shape& wanted) const {
  Shape to = wanted;
  const int shift = to.size() - dim();
  for (int i = 0; i < to.size(); ++i) {
    if (to[i] == -1 && i >= shift) to[i] = shape()[i - shift];
  }
  (void)checked_bytes("expand", to, headroom::size_bytes(dtype()));
  if (shift < 0 || broadcast_shapes("expand", shape(), to) != to) {
    throw InvalidArgument("expand: " + to_string(shape()) + " does not expand to " + to_string(to));
  }
  return record_view("expand",
                     *this,
                     new_view(*this, to, broadcast_strides(shape(), strides(), to), offset()),
                     [own = shape()](BackwardArgs& b) { b.set_grad(0, sum_to(b.grad(), own)); });
}

Tensor Tensor::flatten(int start, int end) const {
  start = normalize_dim("flatten", start, shape());
  end = normalize_dim("flatten", end, shape());
  if (start > end) {
    throw InvalidArgument("flatten: dimension " + std::to_string(start) + " is behind " +
                          std::to_string(end));
  }
  if (dim() == 0) return reshape({1});
  Shape to;
  for (int i = 0; i < dim(); ++i) {
    i > start&& i <= end ? static_cast<void>(to[start] *= shape()[i]) : to.push_back(shape()[i]);
  }
  return reshape(to);
}

std::vector<Tensor> Tensor::split(std::int64_t size, int dim) const {
  refuse_no_dims("split", *this);
  dim = normalize_dim("split", dim, shape());
  if (size <= 0) throw InvalidArgument("split: pieces of " + std::to_string(size));
  std::vector<Tensor> out;
  const std::int64_t total = shape()[dim];
  size = std::min(size, std::max<std::int64_t>(total, 1));
  for (std::int64_t i = 0; i < std::max<std::int64_t>(divide_up(total, size), 1); ++i) {
    out.push_back(narrow(dim, i * size, std::min(size, total - i * size)));
  }
  return out;
}

std::vector<Tensor> Tensor::chunk(std::int64_t count, int dim) const {
  refuse_no_dims("chunk", *this);
  if (count <= 0) throw InvalidArgument("chunk: into " + std::to_string(count) + " pieces");
  const std::int64_t total = shape()[normalize_dim("chunk", dim, shape())];
  return split(std::max<std::int64_t>(1, divide_up(total, count)), dim);
}

}  // namespace headroom
