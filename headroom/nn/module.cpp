#include "headroom/nn/module.h"

#include <algorithm>
#include <functional>

#include "headroom/autograd/grad_mode.h"
#include "headroom/base/error.h"
#include "headroom/memory/annotation.h"

namespace headroom::nn {
namespace {

// The same tensor over other memory. Its leaf in the graph knew the old type and device, so it gets
// a new one.
void replace(const Tensor& tensor, const std::function<Tensor(const Tensor&)>& moved) {
  const NoGradScope no_grad;
  const bool needs_grad = tensor.requires_grad();
  const Tensor grad = tensor.grad();
  const Tensor other = [&] {
    const memory::CategoryScope category(tensor.storage().category());
    return moved(tensor.detach());
  }();
  if (&other.storage() == &tensor.storage()) return;
  tensor::Impl& own = tensor.impl();
  const tensor::Impl& from = other.impl();
  own.grad_state = nullptr;
  own.storage = from.storage;
  own.strides = from.strides;
  own.offset = from.offset;
  own.dtype = from.dtype;
  if (needs_grad) tensor.requires_grad_();
  if (!grad.defined()) return;
  const memory::CategoryScope category(memory::Category::kGradient);
  tensor.set_grad(moved(grad));
}

}  // namespace

Tensor Module::operator()(const Tensor& x) {
  const NameScope name(*this);
  return forward(x);
}

Tensor Module::forward(const Tensor&) {
  throw InvalidArgument("nn: " + (name_.empty() ? "this module" : "\"" + label() + "\"") +
                        " has no forward of one tensor");
}

std::string Module::label() const {
  return owner_ != nullptr && owner_->is_list() && !owner_->name_.empty()
             ? owner_->label() + "." + name_
             : name_;
}

void Module::check_name(std::string_view name) const {
  const auto is_it = [name](const auto& other) { return other.name == name; };
  const bool is_taken = std::any_of(tensors_.begin(), tensors_.end(), is_it) ||
                        std::any_of(parts_.begin(), parts_.end(), is_it);
  if (!name.empty() && name.find('.') == std::string_view::npos && !is_taken) return;
  throw InvalidArgument(
      "nn: \"" + std::string(name) +
      (is_taken ? "\" is there already" : "\" is no name: it is empty or has a dot"));
}

void Module::add(std::string name, Module& part) {
  check_name(name);
  if (part.owner_ != nullptr) {
    throw InvalidArgument("nn: what is added as \"" + name +
                          "\" is a part of another module, as \"" + part.name_ + "\"");
  }
  part.owner_ = this;
  part.name_ = name;
  parts_.push_back({std::move(name), &part});
}

void Module::add_parameter(std::string name, Tensor& parameter) {
  check_name(name);
  tensors_.push_back({std::move(name), &parameter, false});
}

void Module::add_buffer(std::string name, Tensor& buffer) {
  check_name(name);
  tensors_.push_back({std::move(name), &buffer, true});
}

void Module::collect(const std::string& prefix, bool buffers, std::vector<NamedTensor>& out) const {
  for (const Entry& entry : tensors_) {
    if (entry.is_buffer != buffers || !entry.tensor->defined()) continue;
    const auto is_it = [&](const NamedTensor& other) {
      return other.second.is_same(*entry.tensor);
    };
    if (std::none_of(out.begin(), out.end(), is_it)) {
      out.emplace_back(prefix + entry.name, *entry.tensor);
    }
  }
  for (const Part& part : parts_) part.module->collect(prefix + part.name + ".", buffers, out);
}

std::vector<NamedTensor> Module::named_parameters() const {
  std::vector<NamedTensor> out;
  collect("", false, out);
  return out;
}

std::vector<NamedTensor> Module::named_buffers() const {
  std::vector<NamedTensor> out;
  collect("", true, out);
  return out;
}

std::vector<NamedTensor> Module::named_tensors() const {
  std::vector<NamedTensor> out = named_parameters();
  for (NamedTensor& buffer : named_buffers()) out.push_back(std::move(buffer));
  return out;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> out;
  for (NamedTensor& parameter : named_parameters()) out.push_back(std::move(parameter.second));
  return out;
}

std::int64_t Module::num_parameters() const {
  std::int64_t sum = 0;
  for (const Tensor& parameter : parameters()) sum += parameter.numel();
  return sum;
}

void Module::train(bool is_training) {
  is_training_ = is_training;
  for (const Part& part : parts_) part.module->train(is_training);
}

// NOLINTBEGIN(readability-make-member-function-const): the tensors are what a module is
void Module::to(const Place& place) {
  for (const NamedTensor& named : named_tensors()) {
    replace(named.second, [&](const Tensor& x) { return x.to(place); });
  }
}

void Module::to(DType dtype) {
  for (const NamedTensor& named : named_tensors()) {
    if (!is_floating(named.second.dtype())) continue;
    replace(named.second, [dtype](const Tensor& x) { return x.to(dtype); });
  }
}

void Module::zero_grad(bool set_to_none) {
  for (const Tensor& parameter : parameters()) {
    const Tensor grad = parameter.grad();
    if (!grad.defined()) continue;
    if (set_to_none) {
      parameter.set_grad({});
      continue;
    }
    const NoGradScope no_grad;
    grad.detach().zero_();
  }
}
// NOLINTEND(readability-make-member-function-const)

}  // namespace headroom::nn
