#include <array>

#include "headroom/tensor/cpu/internal/element_functions.h"
#include "headroom/tensor/cpu/internal/thread_pool.h"
#include "headroom/tensor/internal/blocks.h"
#include "headroom/tensor/internal/cpu_kernels.h"

namespace headroom::tensor::cpu {
namespace {

// One thread's part of an op, block by block.
template <class C>
class Walk {
 public:
  Walk(const ElementArgs& args, ElementFunction<C> function) : args_(args), function_(function) {
    for (std::size_t i = 0; i < inputs(); ++i) {
      if (!args_.in[i].is_scalar) continue;
      // A number fills its block once.
      load(args_.in[i], args_.shape, 0, std::min(args_.numel, kBlock), buffers_[i].values);
    }
  }

  void run(std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += kBlock) {
      run_block(at, std::min(kBlock, end - at));
    }
  }

 private:
  [[nodiscard]] std::size_t inputs() const { return static_cast<std::size_t>(args_.inputs); }

  void run_block(std::int64_t start, std::int64_t count) {
    std::array<const C*, 3> in{};
    for (std::size_t i = 0; i < inputs(); ++i) {
      in[i] = args_.in[i].is_scalar
                  ? buffers_[i].values
                  : read(args_.in[i], args_.shape, start, count, buffers_[i].values);
    }
    if (C* in_place = direct<C>(args_.out, args_.shape, start, count)) {
      function_(in_place, in.data(), count);
      return;
    }
    function_(result_.values, in.data(), count);
    store(args_.out, args_.shape, start, count, result_.values);
  }

  const ElementArgs& args_;
  ElementFunction<C> function_;
  std::array<Block<C>, 3> buffers_;
  Block<C> result_;
};

template <class C>
void walk_all(const ElementArgs& args, ElementFunction<C> function) {
  parallel_for(args.numel, kGrain, [&](std::int64_t begin, std::int64_t end) {
    Walk<C>(args, function).run(begin, end);
  });
}

}  // namespace

void element(const ElementArgs& args, const Launch&) {
  if (args.compute == ComputeType::kC64) {
    walk_all<Complex64>(args, complex_function(args.op));
    return;
  }
  with_compute_type(args.compute,
                    [&]<class C>() { walk_all<C>(args, element_function<C>(args.op)); });
}

}  // namespace headroom::tensor::cpu
