// Datasets from files: the bytes of any file for a language model, and images with labels in the
// IDX format (MNIST and its kin).
//
//   | 0 0 8 d | d sizes, 4 bytes each, big-endian | one byte an element |      8 is the type: u8
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headroom/base/format_error.h"
#include "headroom/nn/data/dataset.h"

namespace headroom::nn {

// Sequences of `length` bytes one behind the other, i64 and below 256; the targets are the bytes
// that follow.
class ByteText : public Dataset {
 public:
  static constexpr std::int64_t kVocabulary = 256;

  // Throws Error when the file cannot be read or has not more than `length` bytes, InvalidArgument
  // for a length below 1.
  ByteText(const std::string& path, std::int64_t length);
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] ExampleSpec spec() const override;
  void write(std::int64_t i, void* input, void* target) const override;

 private:
  std::vector<std::byte> bytes_;
  std::int64_t length_;
  std::int64_t size_;
};

struct IdxHeader {
  std::vector<std::uint32_t> sizes{};
  std::uint64_t data_offset = 0;
  std::uint64_t data_bytes = 0;
};

// `bytes` are the start of a file of `file_bytes`, at least all of its header.
[[nodiscard]] FormatResult<IdxHeader> parse_idx_header(std::span<const std::byte> bytes,
                                                       std::uint64_t file_bytes);

// f32 images [1, height, width] from 0 to 1, i64 labels.
class IdxImages : public Dataset {
 public:
  // Throws Error: "train-images: at byte 16: ...".
  IdxImages(const std::string& images, const std::string& labels);
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] ExampleSpec spec() const override;
  void write(std::int64_t i, void* input, void* target) const override;
  // The largest label, and one more.
  [[nodiscard]] std::int64_t classes() const noexcept { return classes_; }

 private:
  std::vector<std::byte> pixels_;
  std::vector<std::byte> labels_;
  std::int64_t size_ = 0;
  std::int64_t height_ = 0;
  std::int64_t width_ = 0;
  std::int64_t classes_ = 0;
};

}  // namespace headroom::nn
