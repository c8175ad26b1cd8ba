#include "headroom/nn/containers.h"

#include <string>

#include "headroom/base/error.h"

namespace headroom::nn {

Module& ModuleList::push_back(std::unique_ptr<Module> part) {
  if (!part) throw InvalidArgument("nn: a list takes no null");
  Module& out = *part;
  add(std::to_string(owned_.size()), out);
  owned_.push_back(std::move(part));
  return out;
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor out = x;
  for (const auto& part : *this) out = (*part)(out);
  return out;
}

}  // namespace headroom::nn
