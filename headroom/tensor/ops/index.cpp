#include "headroom/tensor/ops/index.h"

#include "headroom/tensor/internal/index.h"
#include "headroom/tensor/internal/must.h"
#include "headroom/tensor/internal/op.h"
#include "headroom/tensor/ops/creation.h"

namespace headroom {
namespace tensor {

void check_indices(const char* op,
                   const Tensor& index,
                   std::int64_t bound,
                   std::optional<std::int64_t> ignored) {
  if (index.dtype() != DType::kI64) {
    throw InvalidArgument(std::string(op) + ": indices must be i64, not " +
                          std::string(to_string(index.dtype())));
  }
  device::Device& device = index.device();
  const Backend backend = backend_of(device);
  if (backend.is_planned || backend.kernels.check_index == nullptr || index.numel() == 0) return;
  const Launch where{.device = device, .stream = current_stream_id(device)};
  const bool runs_inline = backend.kernels.is_host && where.stream == device::StreamId::kDefault;
  if (!runs_inline) must(device.synchronize_stream(where.stream));
  IndexCheckArgs args{.index = static_cast<const std::int64_t*>(pointer(index)),
                      .shape = index.shape(),
                      .strides = index.strides(),
                      .bound = bound,
                      .ignored = ignored};
  backend.kernels.check_index(args, where);
  if (!args.found) return;
  throw InvalidArgument(std::string(op) + ": index " + std::to_string(args.bad) +
                        " is out of range for size " + std::to_string(bound));
}

}  // namespace tensor

namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words

// All but the dimension itself must lie inside `bounds`.
void check_inside(const char* op, const Tensor& index, int dim, const Shape& bounds) {
  bool fits = index.dim() == bounds.size();
  for (int i = 0; fits && i < bounds.size(); ++i) fits = i == dim || index.shape()[i] <= bounds[i];
  if (fits) return;
  throw InvalidArgument(std::string(op) + ": an index of " + to_string(index.shape()) +
                        " does not fit into " + to_string(bounds) + " along dimension " +
                        std::to_string(dim));
}

int check(const char* op, const Tensor& x, int dim, const Tensor& index) {
  check_same_device(op, x, index);
  if (x.dim() == 0)
    throw InvalidArgument(std::string(op) + ": a tensor of no dimensions has no index");
  dim = normalize_dim(op, dim, x.shape());
  check_inside(op, index, dim, x.shape());
  check_indices(op, index, x.shape()[dim]);
  return dim;
}

void check_source(const char* op, const Tensor& x, const Tensor& index, const Tensor& source) {
  check_same_device(op, x, source);
  if (source.dtype() != x.dtype()) {
    throw InvalidArgument(std::string(op) + ": types differ: " + std::string(to_string(x.dtype())) +
                          " and " + std::string(to_string(source.dtype())));
  }
  check_inside(op, index, -1, source.shape());
}

// `indexed` is `from` or `to`: the one that an index says the place in.
IndexArgs index_args(
    int dim, const Tensor& index, const Tensor& from, const Tensor& to, const Tensor& indexed) {
  return {.dtype = to.dtype(),
          .dim = dim,
          .shape = index.shape(),
          .index = static_cast<const std::int64_t*>(pointer(index)),
          .index_strides = index.strides(),
          .from = pointer(from),
          .from_strides = from.strides(),
          .to = pointer(to),
          .to_strides = to.strides(),
          .bound = indexed.shape()[dim]};
}

void run_gather(
    const char* name, const Tensor& to, const Tensor& from, int dim, const Tensor& index) {
  if (index.numel() == 0) return;
  launch(name, to, &Kernels::gather, index_args(dim, index, from, to, from));
}

void run_scatter(const char* name,
                 const Tensor& to,
                 const Tensor& from,
                 int dim,
                 const Tensor& index,
                 bool is_add) {
  if (index.numel() == 0) return;
  IndexArgs args = index_args(dim, index, from, to, to);
  args.is_add = is_add;
  launch(name, to, &Kernels::scatter, args);
}

// Gradients of what was gathered, added up where they came from: in what there is of input 0's
// gradient, or in a tensor of its own.
Tensor gather_backward(
    BackwardArgs& b, const Tensor& grad, const Tensor& index, int dim, const Shape& shape) {
  refuse_second_derivative("gather", {&grad});
  if (Tensor sum = b.sum_so_far(0); sum.defined()) {
    run_scatter("gather", sum, grad, dim, index, true);
    sum.storage().bump_version();
    return sum;
  }
  Tensor out = new_output("gather", grad, shape, grad.dtype());
  run_element(ElementOp::kCopy, out.dtype(), out, {Scalar(0)});
  run_scatter("gather", out, grad, dim, index, true);
  return out;
}

Tensor gathered(const Tensor& grad, const Tensor& index, int dim, const Shape& source) {
  refuse_second_derivative("scatter", {&grad});
  Tensor picked = new_output("scatter", grad, index.shape(), grad.dtype());
  run_gather("scatter", picked, grad, dim, index);
  if (index.shape() == source) return picked;
  // The source may be larger than the index; the rest of it was not used.
  Tensor out = new_output("scatter", grad, source, grad.dtype());
  run_element(ElementOp::kCopy, out.dtype(), out, {Scalar(0)});
  Tensor part = out;
  const GradModeScope no_grad(false);
  for (int i = 0; i < source.size(); ++i) part = part.narrow(i, 0, index.shape()[i]);
  run_element(ElementOp::kCopy, out.dtype(), part, {picked});
  return out;
}

// Saved: the index. What was overwritten has no gradient; what was added to keeps it.
auto scatter_backward(int dim, const Tensor& source, bool is_add) {
  return [dim, shape = source.shape(), is_add](BackwardArgs& b) {
    const Tensor index = b.saved(0);
    if (b.needs(0) && is_add) b.set_grad(0, b.grad());
    if (b.needs(0) && !is_add) {
      const GradModeScope no_grad(false);
      const Tensor grad = b.grad().clone();
      const Tensor zero = new_output("scatter", grad, {}, grad.dtype());
      run_element(ElementOp::kCopy, zero.dtype(), zero, {Scalar(0)});
      run_scatter("scatter", grad, zero.expand(index.shape()), dim, index, false);
      b.set_grad(0, grad);
    }
    if (b.needs(1)) b.set_grad(1, gathered(b.grad(), index, dim, shape));
  };
}

Tensor scatter_named(const char* name,
                     const Tensor& x,
                     int dim,
                     const Tensor& index,
                     const Tensor& source,
                     bool is_add) {
  check_source(name, x, index, source);
  dim = check(name, x, dim, index);
  const Tensor y = new_output(name, x, x.shape(), x.dtype());
  run_element(ElementOp::kCopy, x.dtype(), y, {x});
  run_scatter(name, y, source, dim, index, is_add);
  return record({name, kEachOutput},
                {&x, &source},
                y,
                {save_input(index)},
                scatter_backward(dim, source, is_add));
}

const Tensor& scatter_in_place(const char* name,
                               const Tensor& self,
                               int dim,
                               const Tensor& index,
                               const Tensor& source,
                               bool is_add) {
  check_source(name, self, index, source);
  dim = check(name, self, dim, index);
  check_in_place(name, self);
  check_overlap(name, self, {source, index});
  run_scatter(name, self, source, dim, index, is_add);
  self.storage().bump_version();
  record_in_place({name, kEachOutput},
                  {&self, &source},
                  self,
                  {save_input(index)},
                  scatter_backward(dim, source, is_add));
  return self;
}

// The index of whole slices: the same for every element of one.
Tensor spread(const Tensor& index, int dim, Shape shape) {
  Strides strides = Dims::filled(shape.size(), 0);
  strides[dim] = index.strides()[0];
  shape[dim] = index.numel();
  return new_view(index, shape, strides, index.offset());
}

}  // namespace

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  dim = check("gather", x, dim, index);
  const Tensor y = new_output("gather", x, index.shape(), x.dtype());
  run_gather("gather", y, x, dim, index);
  return record(
      {"gather", kNoWork}, {&x}, y, {save_input(index)}, [dim, shape = x.shape()](BackwardArgs& b) {
        b.set_grad(0, gather_backward(b, b.grad(), b.saved(0), dim, shape));
      });
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  check_same_device("index_select", x, index);
  dim = normalize_dim("index_select", dim, x.shape());
  if (index.dim() != 1 || x.dim() == 0) {
    throw InvalidArgument("index_select: an index of one dimension is wanted, not " +
                          to_string(index.shape()));
  }
  check_indices("index_select", index, x.shape()[dim]);
  const Tensor every = spread(index, dim, x.shape());
  const Tensor y = new_output("index_select", x, every.shape(), x.dtype());
  run_gather("index_select", y, x, dim, every);
  return record({"index_select", kNoWork},
                {&x},
                y,
                {save_input(index)},
                [dim, shape = x.shape()](BackwardArgs& b) {
                  b.set_grad(
                      0, gather_backward(b, b.grad(), spread(b.saved(0), dim, shape), dim, shape));
                });
}

Tensor embedding(const Tensor& table, const Tensor& index) {
  check_same_device("embedding", table, index);
  if (table.dim() != 2) {
    throw InvalidArgument("embedding: a table of two dimensions is wanted, not " +
                          to_string(table.shape()));
  }
  check_indices("embedding", index, table.shape()[0]);
  Shape shape = index.shape();
  shape.push_back(table.shape()[1]);
  const Tensor y = new_output("embedding", table, shape, table.dtype());
  const auto rows = [](const Tensor& of) {
    const GradModeScope no_grad(false);
    return of.contiguous().view({of.numel()});
  };
  const auto flat = [](const Tensor& of, std::int64_t width) {
    return new_view(
        of, {of.numel() / std::max<std::int64_t>(width, 1), width}, {width, 1}, of.offset());
  };
  run_gather(
      "embedding", flat(y, table.shape()[1]), table, 0, spread(rows(index), 0, table.shape()));
  return record({"embedding", kNoWork},
                {&table},
                y,
                {save_input(index)},
                [rows, flat, own = table.shape()](BackwardArgs& b) {
                  const Tensor dense = b.grad().contiguous();
                  const Tensor every = spread(rows(b.saved(0)), 0, own);
                  b.set_grad(0, gather_backward(b, flat(dense, own[1]), every, 0, own));
                });
}

Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  return scatter_named("scatter", x, dim, index, source, false);
}
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  return scatter_named("scatter_add", x, dim, index, source, true);
}
const Tensor& Tensor::scatter_(int dim, const Tensor& index, const Tensor& source) const {
  return scatter_in_place("scatter_", *this, dim, index, source, false);
}
const Tensor& Tensor::scatter_add_(int dim, const Tensor& index, const Tensor& source) const {
  return scatter_in_place("scatter_add_", *this, dim, index, source, true);
}

}  // namespace headroom
