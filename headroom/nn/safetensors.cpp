#include "headroom/nn/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <unistd.h>
#include <utility>

#include "headroom/autograd/grad_mode.h"
#include "headroom/base/error.h"
#include "headroom/nn/internal/safetensors_header.h"
#include "headroom/tensor/ops/creation.h"

namespace headroom::nn {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw Error(path + ": " + why);
}

std::string system_reason() { return std::strerror(errno); }

// A file that takes the place of another once it is whole; removed otherwise.
class NewFile {
 public:
  explicit NewFile(std::string path)
      : path_(std::move(path)),
        temporary_(path_ + ".part" + std::to_string(getpid())),
        file_(std::fopen(temporary_.c_str(), "wb")) {
    if (file_ == nullptr) fail(path_, system_reason());
  }
  ~NewFile() {
    if (file_ != nullptr) (void)std::fclose(file_);
    if (!is_done_) (void)std::remove(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    if (bytes > 0 && std::fwrite(data, 1, bytes, file_) != bytes) fail(path_, system_reason());
  }

  void finish() {
    const bool is_flushed = std::fflush(file_) == 0 && fsync(fileno(file_)) == 0;
    const std::string why = is_flushed ? "" : system_reason();
    const bool is_closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    if (!is_flushed || !is_closed) fail(path_, is_flushed ? system_reason() : why);
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, system_reason());
    is_done_ = true;
  }

 private:
  std::string path_;
  std::string temporary_;
  std::FILE* file_;
  bool is_done_ = false;
};

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
  explicit Reader(const std::string& path) : path_(path), in_(path, std::ios::binary) {
    std::error_code status;
    const std::uint64_t bytes = fs::file_size(path, status);
    if (status || !in_) fail(path, status ? status.message() : "cannot be opened");
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

  void read_at(std::uint64_t offset, std::byte* to, std::uint64_t bytes) {
    in_.seekg(static_cast<std::streamoff>(offset));
    in_.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(bytes));
    if (!in_) fail(path_, "at byte " + std::to_string(offset) + ": the data cannot be read");
  }

  // Any other value of a bool is not one.
  void check_bools(const SafetensorsEntry& entry, const Tensor& tensor) const {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(tensor.address());
    for (std::uint64_t i = 0; i < entry.size_bytes; ++i) {
      if (bytes[i] > 1) {
        fail(path_,
             to_string(FormatError{
                 .message = "\"" + entry.name + "\" has a BOOL of " + std::to_string(bytes[i]),
                 .offset = entry.offset + i}));
      }
    }
  }

  std::string path_;
  std::ifstream in_;
  SafetensorsHeader header_{};
};

void append(std::string& list, const std::string& item) {
  list += (list.empty() ? "" : ", ") + item;
}

// What keeps a file from being a module's, in one line; empty for nothing.
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
  NewFile file(path);
  file.write(header.data(), header.size());
  for (const NamedTensor& named : tensors) {
    const Tensor host = on_host(named.second);
    file.write(reinterpret_cast<const void*>(host.address()), host.size_bytes());
  }
  file.finish();
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
