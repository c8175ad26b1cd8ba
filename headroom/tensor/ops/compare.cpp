#include "headroom/tensor/ops/compare.h"

#include "headroom/tensor/internal/binary.h"
#include "headroom/tensor/ops/reduce.h"

namespace headroom {
namespace {

using namespace tensor;  // NOLINT(google-build-using-namespace): the op layer's own words
using enum ElementOp;

// Complex numbers are equal or not, and no more.
void check_order(const char* name, ElementOp op, DType dtype) {
  if (op != kEq && op != kNe && op != kIsNan) refuse_complex(name, dtype);
}

Tensor compare(const char* name, ElementOp op, const Tensor& a, const Tensor& b) {
  const ResultSpec to = join(name, a, b);
  check_order(name, op, to.dtype);
  Tensor out = new_output(name, a, to.shape, DType::kBool);
  run_element(op, to.dtype, out, {a, b});
  return out;
}

Tensor compare(const char* name, ElementOp op, const Tensor& a, Scalar b) {
  check_order(name, op, a.dtype());
  Tensor out = new_output(name, a, a.shape(), DType::kBool);
  run_element(op, promote_types(a.dtype(), b), out, {a, b});
  return out;
}

Tensor test_each(const char* name, ElementOp op, const Tensor& x) {
  check_order(name, op, x.dtype());
  Tensor out = new_output(name, x, x.shape(), DType::kBool);
  run_element(op, x.dtype(), out, {x});
  return out;
}

}  // namespace

#define HEADROOM_COMPARE(name, op)                                                   \
  Tensor name(const Tensor& a, const Tensor& b) { return compare(#name, op, a, b); } \
  Tensor name(const Tensor& a, Scalar b) { return compare(#name, op, a, b); }
HEADROOM_COMPARE(eq, kEq)
HEADROOM_COMPARE(ne, kNe)
HEADROOM_COMPARE(lt, kLt)
HEADROOM_COMPARE(le, kLe)
HEADROOM_COMPARE(gt, kGt)
HEADROOM_COMPARE(ge, kGe)
#undef HEADROOM_COMPARE

Tensor logical_and(const Tensor& a, const Tensor& b) { return compare("logical_and", kAnd, a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return compare("logical_or", kOr, a, b); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return compare("logical_xor", kXor, a, b); }
Tensor logical_not(const Tensor& x) { return test_each("logical_not", kLogicalNot, x); }
Tensor isnan(const Tensor& x) { return test_each("isnan", kIsNan, x); }

bool equal(const Tensor& a, const Tensor& b) {
  check_same_device("equal", a, b);
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return all(eq(a, b)).item<bool>();
}

}  // namespace headroom
