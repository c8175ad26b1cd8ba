// Tensors in a file, by name: the safetensors format, which Python reads and writes.
//
//   nn::save(model, "model.safetensors", {{"epoch", "12"}});
//   nn::load(model, "model.safetensors");            // names and shapes must be the model's
//
//   const nn::SafetensorsFile file = nn::read_safetensors("model.safetensors");
//
//   | u64 n | JSON, n bytes | data                                       |
//            {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}   from the start of data
//
// Every byte of data belongs to one tensor. F64 F32 F16 BF16 I64 I32 U8 BOOL and C64 are read;
// other types are refused by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headroom/base/format_error.h"
#include "headroom/nn/module.h"

namespace headroom::nn {

using Metadata = std::map<std::string, std::string>;

// Throws Error when a file cannot be written; then one that was there before still is: it is
// written beside it and takes its place when it is whole.
void save_safetensors(const std::vector<NamedTensor>& tensors,
                      const std::string& path,
                      const Metadata& metadata = {});
inline void save(const Module& module, const std::string& path, const Metadata& metadata = {}) {
  save_safetensors(module.named_tensors(), path, metadata);
}

struct SafetensorsFile {
  std::vector<NamedTensor> tensors{};  // in the order of their data
  Metadata metadata{};
};

// Throws Error: "model.safetensors: at byte 8: ...".
[[nodiscard]] SafetensorsFile read_safetensors(const std::string& path, const Place& place = {});

// Copies what the file has into the module's tensors, converting types. Throws Error, before
// anything is changed, where shapes differ; and unless `is_strict` is false, where a name is only
// on one side. Returns the metadata.
Metadata load(Module& module, const std::string& path, bool is_strict = true);

// --- The header alone
// -----------------------------------------------------------------------------

struct SafetensorsEntry {
  std::string name{};
  DType dtype = DType::kF32;
  Shape shape{};
  std::uint64_t offset = 0;  // in the file
  std::uint64_t size_bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries{};  // in the order of their data
  Metadata metadata{};
};

// From the first bytes of a file of `file_bytes`; all of the header must be there.
[[nodiscard]] FormatResult<SafetensorsHeader> parse_safetensors_header(
    std::span<const std::byte> start, std::uint64_t file_bytes);

}  // namespace headroom::nn
