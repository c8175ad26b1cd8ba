#include "headroom/nn/safetensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "headroom/autograd/grad_mode.h"
#include "headroom/base/error.h"
#include "headroom/base/input_file.h"
#include "headroom/base/new_file.h"
#include "headroom/nn/internal/safetensors_header.h"
#include "headroom/tensor/ops/creation.h"

namespace headroom::nn {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw Error(path + ": " + why);
}

// Calls `f`, whose errors do not name the file.
template <class F>
auto named(const std::string& path, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error& error) {
    fail(path, error.what());
  }
}

SafetensorsHeader header_for(const std::vector<NamedTensor>& tensors, const Metadata& metadata) {
  SafetensorsHeader out{.metadata = metadata};
  std::map<std::string, bool> seen;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (name == "__metadata__" || !seen.emplace(name, true).second) {
      throw InvalidArgument("save: the name \"" + name + "\" is taken");
    }
    out.entries.push_back({.name = name,
                           .dtype = tensor.dtype(),
                           .shape = tensor.shape(),
                           .offset = offset,
                           .size_bytes = tensor.size_bytes()});
    offset += tensor.size_bytes();
  }
  return out;
}

// Its bytes one behind the other, where the processor can read them.
Tensor on_host(const Tensor& tensor) {
  const NoGradScope no_grad;
  const Tensor dense = tensor.detach().contiguous();
  return dense.device().properties().host_accessible ? dense : dense.to("cpu");
}

class Reader {
 public:
  explicit Reader(const std::string& path)
      : path_(path), in_(named(path, [&] { return std::make_unique<InputFile>(path); })) {
    if (in_->is_pipe())
      fail(path, "it is a pipe, and tensors are read where they lie: name a file");
    const std::uint64_t bytes = in_->size_bytes();
    std::vector<std::byte> start(std::min<std::uint64_t>(bytes, internal::kLengthBytes));
    read_at(0, start.data(), start.size());
    start.resize(std::min(bytes, header_bytes(start)));
    read_at(0, start.data(), start.size());
    auto parsed = parse_safetensors_header(start, bytes);
    if (!parsed) fail(path, to_string(parsed.error()));
    header_ = std::move(*parsed);
  }

  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }

  // On the processor, or without elements where `place` has none.
  Tensor read(const SafetensorsEntry& entry, const Place& place) {
    const NoGradScope no_grad;
    memory::Allocator& target = place.resolve();
    const bool is_meta = target.device().id().kind == device::DeviceKind::kMeta;
    const bool is_host = target.device().properties().host_accessible;
    const Tensor out =
        empty(entry.shape, {.dtype = entry.dtype, .device = is_meta || is_host ? place : "cpu"});
    if (!is_meta) {
      read_at(entry.offset, reinterpret_cast<std::byte*>(out.address()), entry.size_bytes);
      if (entry.dtype == DType::kBool) check_bools(entry, out);
    }
    return is_meta || is_host ? out : out.to(place);
  }

 private:
  // As many as the file says there are; no more than may be.
  static std::uint64_t header_bytes(const std::vector<std::byte>& start) {
    if (start.size() < internal::kLengthBytes) return start.size();
    std::uint64_t length = 0;
    std::memcpy(&length, start.data(), sizeof(length));
    return internal::kLengthBytes + std::min(length, internal::kMaxHeaderBytes);
  }

  void read_at(std::uint64_t offset, std::byte* to, std::uint64_t bytes) const {
    const std::size_t got = named(path_, [&] { return in_->read_at(offset, {to, bytes}); });
    if (got == bytes) return;
    fail(path_, "at byte " + std::to_string(offset + got) + ": the file ends inside of its data");
  }

  // Any other value of a bool is not one.
  void check_bools(const SafetensorsEntry& entry, const Tensor& tensor) const {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(tensor.address());
    for (std::uint64_t i = 0; i < entry.size_bytes; ++i) {
      if (bytes[i] > 1) {
        fail(path_,
             to_string(FormatError{.message = "\"" + excerpt(entry.name) + "\" has a BOOL of " +
                                              std::to_string(bytes[i]),
                                   .offset = entry.offset + i}));
      }
    }
  }

  std::string path_;
  std::unique_ptr<InputFile> in_;
  SafetensorsHeader header_{};
};

void append(std::string& list, const std::string& item) {
  list += (list.empty() ? "" : ", ") + item;
}

// The reason why a file does not fit a module, in one line; empty for none.
std::string differences(const std::map<std::string, const SafetensorsEntry*>& entries,
                        const std::map<std::string, Tensor>& tensors,
                        bool is_strict) {
  std::string missing;
  std::string unexpected;
  std::string shapes;
  for (const auto& [name, tensor] : tensors) {
    const auto found = entries.find(name);
    if (found == entries.end()) {
      if (is_strict) append(missing, name);
    } else if (found->second->shape != tensor.shape()) {
      append(
          shapes,
          name + " is " + to_string(found->second->shape) + ", not " + to_string(tensor.shape()));
    }
  }
  for (const auto& [name, entry] : entries) {
    if (is_strict && !tensors.contains(name)) append(unexpected, name);
  }
  std::string out;
  const auto say = [&out](const char* what, const std::string& list) {
    if (!list.empty()) out += (out.empty() ? "" : "; ") + std::string(what) + list;
  };
  say("missing: ", missing);
  say("unexpected: ", unexpected);
  say("shapes differ: ", shapes);
  return out;
}

}  // namespace

void save_safetensors(const std::vector<NamedTensor>& tensors,
                      const std::string& path,
                      const Metadata& metadata) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.is_meta()) {
      throw InvalidArgument("save: \"" + name + "\" is on " + to_string(tensor.device().id()) +
                            " and has no values");
    }
  }
  const std::string header = internal::header_text(header_for(tensors, metadata));
  named(path, [&] {
    NewFile file(path, true);
    file.write(header);
    for (const auto& [name, tensor] : tensors) {
      const Tensor host = on_host(tensor);
      file.write({reinterpret_cast<const std::byte*>(host.address()), host.size_bytes()});
    }
    file.commit();
  });
}

SafetensorsFile read_safetensors(const std::string& path, const Place& place) {
  Reader reader(path);
  SafetensorsFile out{.metadata = reader.header().metadata};
  for (const SafetensorsEntry& entry : reader.header().entries) {
    out.tensors.emplace_back(entry.name, reader.read(entry, place));
  }
  return out;
}

Metadata load(Module& module, const std::string& path, bool is_strict) {
  Reader reader(path);
  std::map<std::string, const SafetensorsEntry*> entries;
  for (const SafetensorsEntry& entry : reader.header().entries) entries[entry.name] = &entry;
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : module.named_tensors()) tensors[name] = tensor;
  const std::string wrong = differences(entries, tensors, is_strict);
  if (!wrong.empty()) fail(path, wrong);
  const NoGradScope no_grad;
  for (const auto& [name, tensor] : tensors) {
    const auto found = entries.find(name);
    if (found != entries.end()) tensor.copy_(reader.read(*found->second, "cpu"));
  }
  return reader.header().metadata;
}

}  // namespace headroom::nn
