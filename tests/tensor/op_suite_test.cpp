// Tests drawn from the table: every op, every type, odd shapes and layouts, on every backend.
// Gradients are autograd's, which the program links.
#include "tests/tensor/op_suite.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"

#include "tests/tensor/test_tape.h"

namespace headroom::testing {
namespace {

using memory::Action;

constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kTransposed, Layout::kStepped};

// What rounding a result once costs.
double precision(DType dtype) {
  switch (dtype) {
    case kF64:
      return 1e-14;
    case kF32:
      return 5e-7;
    case kF16:
      return 1e-3;
    case kBF16:
      return 8e-3;
    default:
      return 0;
  }
}

std::int64_t numel(const Sample& sample) {
  std::int64_t out = 0;
  for (const Input& input : sample) out += checked_numel("test", input.shape);
  return out;
}

// Large samples are for threads, parts and strips: one type of each kind of arithmetic shows those.
bool is_worth(const OpRow& row, const Sample& sample, DType dtype, Layout layout) {
  constexpr std::int64_t kLarge = 5000;
  if (numel(sample) < kLarge) return true;
  if (layout == Layout::kStepped) return false;
  return dtype == row.dtypes.front() || (layout == Layout::kContiguous && dtype == kBF16);
}

struct Operands {
  std::vector<Array> arrays{};
  std::vector<Tensor> tensors{};
};

Operands operands(const Sample& sample, DType dtype, Layout layout, const Place& place) {
  Operands out;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const DType type = sample[i].fixed.value_or(dtype);
    out.arrays.push_back(draw(sample[i], dtype, 100 + i));
    out.tensors.push_back(put(out.arrays.back(), type, layout, place));
  }
  return out;
}

// One test for each row and backend.
struct Case {
  const OpRow* row;
  const TensorBackend* backend;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.row->name << " on " << c.backend->name; }

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const TensorBackend& backend : tensor_backends()) {
    for (const OpRow& row : op_table()) out.push_back({&row, &backend});
  }
  return out;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string out = info.param.backend->name + "_" + info.param.row->name;
  for (char& c : out) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return out;
}

class OpSuite : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] static const OpRow& row() { return *GetParam().row; }

  // Wants gradients of all that can have one.
  static void want_gradients(const Operands& in, const Sample& sample) {
    for (std::size_t i = 0; i < sample.size(); ++i) {
      if (!sample[i].fixed) in.tensors[i].requires_grad_();
    }
  }

  World world_ = GetParam().backend->make();
};

void expect_near(const Tensor& got, const Array& wanted, double tolerance) {
  ASSERT_EQ(got.shape(), wanted.shape);
  const Array found = take(got);
  for (std::size_t i = 0; i < found.values.size(); ++i) {
    const double allowed = tolerance * (1 + std::abs(wanted.values[i]));
    if (std::isnan(wanted.values[i]) && std::isnan(found.values[i])) continue;
    ASSERT_NEAR(found.values[i], wanted.values[i], allowed) << "at " << i;
  }
}

TEST_P(OpSuite, AgreesWithTheReference) {
  for (const DType dtype : row().dtypes) {
    for (const Sample& sample : row().samples) {
      for (const Layout layout : kLayouts) {
        if (!is_worth(row(), sample, dtype, layout)) continue;
        SCOPED_TRACE(std::string(to_string(dtype)) + " " + to_string(sample[0].shape) + " layout " +
                     std::to_string(static_cast<int>(layout)));
        const Operands in = operands(sample, dtype, layout, world_.allocator());
        const Tensor out = row().call(in.tensors);
        ASSERT_EQ(out.dtype(), row().result(dtype));
        const double tolerance = precision(row().result(dtype)) * row().tolerance;
        expect_near(out, row().reference(in.arrays), tolerance);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_EQ(world_.allocated_bytes(), 0);
}

// --- Gradients ----------------------------------------------------------------------------------

double weighted(const Tensor& out, const Array& weights) {
  double sum = 0;
  const std::vector<double> values = out.to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * weights.values[i];
  return sum;
}

// (f(x + h) - f(x - h)) / 2h for every element of one operand.
Array finite_differences(const OpRow& row,
                         const Operands& in,
                         std::size_t which,
                         const Array& weights) {
  constexpr double kStep = 1e-6;
  const Place place(in.tensors[which].storage().allocator());
  Array out = in.arrays[which];
  std::vector<Tensor> moved = in.tensors;
  for (double& value : out.values) {
    Array x = in.arrays[which];
    double& own = x.values[static_cast<std::size_t>(&value - out.values.data())];
    const double at = own;
    own = at + kStep;
    moved[which] = put(x, kF64, Layout::kContiguous, place);
    const double above = weighted(row.call(moved), weights);
    own = at - kStep;
    moved[which] = put(x, kF64, Layout::kContiguous, place);
    value = (above - weighted(row.call(moved), weights)) / (2 * kStep);
  }
  return out;
}

TEST_P(OpSuite, GradientsAgreeWithFiniteDifferences) {
  if (!row().has_gradient) return;
  constexpr std::int64_t kMost = 130;
  for (const Sample& sample : row().samples) {
    if (numel(sample) > kMost) continue;
    for (const Layout layout : kLayouts) {
      SCOPED_TRACE(to_string(sample[0].shape) + " layout " +
                   std::to_string(static_cast<int>(layout)));
      const Operands in = operands(sample, kF64, layout, world_.allocator());
      want_gradients(in, sample);
      const Tensor out = row().call(in.tensors);
      const Array weights = draw({.shape = out.shape(), .low = 0.5, .high = 1.5}, kF64, 7);
      out.backward(put(weights, kF64, Layout::kContiguous, world_.allocator()));
      const GradModeScope no_grad(false);
      for (std::size_t i = 0; i < sample.size(); ++i) {
        if (sample[i].fixed) continue;
        const Tensor grad = in.tensors[i].grad();
        ASSERT_TRUE(grad.defined()) << "operand " << i;
        ASSERT_EQ(grad.dtype(), kF64);
        expect_near(grad, finite_differences(row(), in, i, weights), 2e-7);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Of every floating type, gradients have the type and shape of what they belong to.
TEST_P(OpSuite, GradientsHaveTheTypeOfTheirTensor) {
  if (!row().has_gradient) return;
  for (const DType dtype : row().dtypes) {
    if (!is_floating(dtype)) continue;
    const Sample& sample = row().samples[0];
    const Operands in = operands(sample, dtype, Layout::kContiguous, world_.allocator());
    want_gradients(in, sample);
    const Tensor out = row().call(in.tensors);
    out.backward(ones_like(out));
    for (std::size_t i = 0; i < sample.size(); ++i) {
      if (sample[i].fixed) continue;
      ASSERT_TRUE(in.tensors[i].grad().defined());
      EXPECT_EQ(in.tensors[i].grad().dtype(), dtype);
      EXPECT_EQ(in.tensors[i].grad().shape(), in.tensors[i].shape());
    }
  }
}

// --- Failures -----------------------------------------------------------------------------------

// Forward and backward, each launch of which fails once: the op's own error, nothing left behind,
// and the next run is right.
TEST_P(OpSuite, AFailedLaunchIsAnErrorThatLeavesNothing) {
  const auto& fail_launch = GetParam().backend->fail_launch;
  if (!fail_launch) return;
  const Sample& sample = row().samples[0];
  const DType dtype = row().has_gradient ? kF64 : row().dtypes[0];
  {
    const Operands in = operands(sample, dtype, Layout::kTransposed, world_.allocator());
    if (row().has_gradient) want_gradients(in, sample);
    const auto run = [&] {
      const Tensor out = row().call(in.tensors);
      if (row().has_gradient) out.backward(ones_like(out));
      const Array result = take(out);
      for (const Tensor& x : in.tensors) x.set_grad({});
      return result;
    };
    const std::vector<double> wanted = run().values;
    const std::int64_t before = world_.allocated_bytes();
    bool has_failed = true;
    for (std::uint64_t position = 1; has_failed; ++position) {
      SCOPED_TRACE("launch " + std::to_string(position));
      fail_launch(world_, position);
      has_failed = false;
      try {
        (void)run();
      } catch (const Error& error) {
        has_failed = true;
        EXPECT_THAT(error.what(), ::testing::HasSubstr("made to fail by a test"));
        EXPECT_THAT(error.what(), ::testing::Not(::testing::StartsWith(":")));
      }
      fail_launch(world_, 0);
      for (const Tensor& x : in.tensors) x.set_grad({});
      ASSERT_EQ(world_.allocated_bytes(), before);
      ASSERT_THAT(run().values, ::testing::Pointwise(::testing::NanSensitiveDoubleEq(), wanted));
    }
  }
  EXPECT_EQ(world_.allocated_bytes(), 0);
}

// --- Memory -------------------------------------------------------------------------------------

TEST_P(OpSuite, AllocatesAndSavesWhatTheTableSays) {
  const Sample& sample = row().samples[0];
  const DType dtype = row().dtypes[0];
  const Operands in = operands(sample, dtype, Layout::kContiguous, world_.allocator());
  EventLog log(world_.allocator());
  // But for the workspaces that the backend needs and the processor does not.
  const auto allocations = [&, before = GetParam().backend->more_workspaces(world_)] {
    const std::uint64_t more = GetParam().backend->more_workspaces(world_) - before;
    return log.count(Action::kAlloc) - static_cast<int>(more);
  };
  (void)row().call(in.tensors);
  EXPECT_EQ(allocations(), row().allocations);
  if (!row().has_gradient) return;

  CountingTape counting(tensor::tape());
  const TapeScope scope(counting);
  want_gradients(in, sample);
  const int before = allocations();
  const Tensor out = row().call(in.tensors);
  EXPECT_EQ(allocations() - before, row().allocations + row().backward_saves);
  EXPECT_EQ(counting.saved_bytes, row().saved(in.tensors, out));
}

TEST_P(OpSuite, DeclaresItsArithmetic) {
  if (!row().has_gradient) return;
  CountingTape counting(tensor::tape());
  const TapeScope scope(counting);
  const Operands in =
      operands(row().samples[0], row().dtypes[0], Layout::kContiguous, world_.allocator());
  want_gradients(in, row().samples[0]);
  (void)row().call(in.tensors);
  EXPECT_TRUE(row().allocations == 0 || !counting.names.empty());
  EXPECT_THAT(counting.undeclared, ::testing::IsEmpty());
}

// Forward and backward, with every operand and gradient dropped at the end.
std::vector<std::string> events_of(
    const World& world, const OpRow& row, const Sample& sample, DType dtype, Layout layout) {
  EventLog log(world.allocator());
  {
    Operands in;
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const DType type = sample[i].fixed.value_or(dtype);
      in.tensors.push_back(put(draw(sample[i], dtype, 100 + i), type, layout, world.allocator()));
      if (row.has_gradient && !sample[i].fixed && is_floating(dtype))
        in.tensors.back().requires_grad_();
    }
    const Tensor out = row.call(in.tensors);
    if (out.requires_grad()) out.backward(ones_like(out));
  }
  return log.lines();
}

TEST_P(OpSuite, MetaAllocatesTheSameEventForEvent) {
  const World meta = GetParam().backend->make_meta();
  for (const DType dtype :
       {row().dtypes.front(), row().dtypes.back(), row().dtypes[row().dtypes.size() / 2]}) {
    for (const Sample& sample : row().samples) {
      for (const Layout layout : kLayouts) {
        if (!is_worth(row(), sample, dtype, layout)) continue;
        SCOPED_TRACE(std::string(to_string(dtype)) + " " + to_string(sample[0].shape) + " layout " +
                     std::to_string(static_cast<int>(layout)));
        ASSERT_EQ(events_of(meta, row(), sample, dtype, layout),
                  events_of(world_, row(), sample, dtype, layout));
      }
    }
  }
  EXPECT_EQ(world_.allocated_bytes(), 0);
  EXPECT_EQ(meta.allocated_bytes(), 0);
}

TEST(Arithmetic, IsCountedByTheShapesOfTheOp) {
  const World world = tensor_backends()[0].make();
  const auto leaf = [&](const Shape& shape) {
    return randn(shape, {.device = world.allocator()}).requires_grad_();
  };
  const auto count = [&](const auto& op) {
    CountingTape counting(tensor::tape());
    const TapeScope scope(counting);
    (void)op();
    return counting.operations;
  };
  const Tensor a = leaf({3, 4});
  EXPECT_EQ(count([&] { return matmul(a, leaf({4, 5})); }), 2 * 3 * 4 * 5);
  EXPECT_EQ(count([&] { return adjoint_matmul(a, leaf({3, 6})); }), 2 * 4 * 3 * 6);
  EXPECT_EQ(count([&] { return bmm(leaf({7, 2, 3}), leaf({7, 3, 5})); }), 7 * 2 * 2 * 3 * 5);
  EXPECT_EQ(count([&] { return linear(leaf({2, 3, 4}), leaf({9, 4})); }), 2 * 6 * 4 * 9);
  EXPECT_EQ(count([&] { return linear_gelu(leaf({6, 4}), leaf({9, 4})); }), 2 * 6 * 4 * 9);
  EXPECT_EQ(count([&] {
              return conv2d(leaf({2, 6, 5, 5}), leaf({4, 3, 3, 3}), {}, {.groups = 2});
            }),
            2 * (2 * 4 * 3 * 3) * (3 * 3 * 3));
  EXPECT_EQ(
      count([&] {
        return scaled_dot_product_attention(leaf({2, 5, 8}), leaf({2, 7, 8}), leaf({2, 7, 3}));
      }),
      2 * 2 * 5 * 7 * (8 + 3));
  EXPECT_EQ(count([&] { return a.sum(); }), 12);
  EXPECT_EQ(count([&] { return relu(a); }), 12);
  EXPECT_EQ(count([&] { return a.transpose(0, 1); }), 0);
  EXPECT_EQ(
      count([&] {
        return embedding(leaf({10, 4}), zeros({3}, {.dtype = kI64, .device = world.allocator()}));
      }),
      0);
}

INSTANTIATE_TEST_SUITE_P(Table, OpSuite, ::testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace headroom::testing
