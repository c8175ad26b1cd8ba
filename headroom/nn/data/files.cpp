#include "headroom/nn/data/files.h"

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/base/input_file.h"

namespace headroom::nn {
namespace {

constexpr std::uint64_t kSizeBytes = 4;
constexpr std::uint64_t kMagicBytes = 4;
constexpr std::uint8_t kUnsignedByte = 8;

std::vector<std::byte> file_bytes_of(const std::string& path, const CheckStart& check = {}) {
  try {
    return read_input(path, check);
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
}

std::uint32_t big_endian(std::span<const std::byte> bytes, std::uint64_t at) {
  std::uint32_t out = 0;
  for (std::uint64_t i = 0; i < kSizeBytes; ++i) {
    out = out << 8U | std::to_integer<std::uint32_t>(bytes[at + i]);
  }
  return out;
}

FormatError wrong_idx(std::string message, std::uint64_t offset) {
  return {.message = std::move(message), .offset = offset};
}

FormatResult<std::uint64_t> idx_dims(std::span<const std::byte> bytes) {
  if (bytes.size() < kMagicBytes) {
    return Unexpected(wrong_idx("the file ends in its first 4 bytes", bytes.size()));
  }
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint8_t>(bytes[i]); };
  if (at(0) == 0x1F && at(1) == 0x8B) {
    return Unexpected(wrong_idx("this is a gzip file; unpack it first", 0));
  }
  if (at(0) != 0 || at(1) != 0) {
    return Unexpected(wrong_idx("an IDX file begins with two zero bytes", at(0) != 0 ? 0 : 1));
  }
  if (at(2) != kUnsignedByte) {
    return Unexpected(
        wrong_idx("elements of type " + std::to_string(at(2)) + "; only 8, bytes, is read", 2));
  }
  if (at(3) == 0) return Unexpected(wrong_idx("no dimensions", 3));
  return std::uint64_t{at(3)};
}

// The contents of an IDX file with that number of dimensions.
struct IdxFile {
  IdxHeader header{};
  std::vector<std::byte> data{};
};

IdxFile read_idx(const std::string& path, std::size_t dims, const char* what) {
  std::vector<std::byte> bytes = file_bytes_of(path, [](std::span<const std::byte> start) {
    if (const auto known = idx_dims(start); !known) throw Error(to_string(known.error()));
  });
  const auto header = parse_idx_header(bytes, bytes.size());
  if (!header) throw Error(path + ": " + to_string(header.error()));
  if (header->sizes.size() != dims) {
    throw Error(path + ": at byte 3: " + std::to_string(header->sizes.size()) +
                " dimensions, where " + what + " have " + std::to_string(dims));
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header->data_offset));
  return {.header = *header, .data = std::move(bytes)};
}

}  // namespace

ByteText::ByteText(const std::string& path, std::int64_t length) : length_(length) {
  if (length < 1) {
    throw InvalidArgument("ByteText: at least 1 byte a sequence is wanted, not " +
                          std::to_string(length));
  }
  bytes_ = file_bytes_of(path);
  size_ = (static_cast<std::int64_t>(bytes_.size()) - 1) / length;
  if (bytes_.size() > static_cast<std::uint64_t>(length)) return;
  throw Error(path + ": " + std::to_string(bytes_.size()) + " bytes are too few for sequences of " +
              std::to_string(length) + " bytes and the one that follows");
}

ExampleSpec ByteText::spec() const {
  const ElementSpec tokens{.dtype = DType::kI64, .shape = {length_}};
  return {.input = tokens, .target = tokens};
}

void ByteText::write(std::int64_t i, void* input, void* target) const {
  const std::byte* const from = bytes_.data() + i * length_;
  constexpr auto kToken = [](std::byte byte) { return std::to_integer<std::int64_t>(byte); };
  std::transform(from, from + length_, static_cast<std::int64_t*>(input), kToken);
  std::transform(from + 1, from + length_ + 1, static_cast<std::int64_t*>(target), kToken);
}

FormatResult<IdxHeader> parse_idx_header(std::span<const std::byte> bytes,
                                         std::uint64_t file_bytes) {
  const auto dims = idx_dims(bytes);
  if (!dims) return Unexpected(dims.error());
  IdxHeader out{.data_offset = kMagicBytes + *dims * kSizeBytes, .data_bytes = 1};
  if (bytes.size() < out.data_offset) {
    return Unexpected(
        wrong_idx("the file ends among the sizes of its " + std::to_string(*dims) + " dimensions",
                  bytes.size()));
  }
  for (std::uint64_t i = 0; i < *dims; ++i) {
    const std::uint64_t at = kMagicBytes + i * kSizeBytes;
    const std::uint32_t size = big_endian(bytes, at);
    if (size == 0) return Unexpected(wrong_idx("a size of 0", at));
    // Bounded by the file at each step, so that the product fits.
    if (out.data_bytes > file_bytes / size) {
      return Unexpected(wrong_idx(
          "sizes of more elements than the file of " + std::to_string(file_bytes) + " bytes has",
          at));
    }
    out.sizes.push_back(size);
    out.data_bytes *= size;
  }
  const std::uint64_t have = file_bytes - out.data_offset;
  if (have == out.data_bytes) return out;
  return Unexpected(wrong_idx(
      (have < out.data_bytes ? "the file ends here, where " : "more bytes follow, where ") +
          std::to_string(out.data_bytes) + " bytes of elements end at byte " +
          std::to_string(out.data_offset + out.data_bytes),
      std::min(file_bytes, out.data_offset + out.data_bytes)));
}

IdxImages::IdxImages(const std::string& images, const std::string& labels) {
  IdxFile read_images = read_idx(images, 3, "images");
  IdxFile read_labels = read_idx(labels, 1, "labels");
  const auto& sizes = read_images.header.sizes;
  if (sizes[0] != read_labels.header.sizes[0]) {
    throw Error(labels + ": at byte 4: " + std::to_string(read_labels.header.sizes[0]) +
                " labels for the " + std::to_string(sizes[0]) + " images of " + images);
  }
  size_ = sizes[0];
  height_ = sizes[1];
  width_ = sizes[2];
  pixels_ = std::move(read_images.data);
  labels_ = std::move(read_labels.data);
  classes_ = std::to_integer<std::int64_t>(*std::max_element(labels_.begin(), labels_.end())) + 1;
}

ExampleSpec IdxImages::spec() const {
  return {.input = {.dtype = DType::kF32, .shape = {1, height_, width_}},
          .target = {.dtype = DType::kI64}};
}

void IdxImages::write(std::int64_t i, void* input, void* target) const {
  const std::int64_t pixels = height_ * width_;
  const std::byte* const from = pixels_.data() + i * pixels;
  auto* const to = static_cast<float*>(input);
  for (std::int64_t k = 0; k < pixels; ++k) {
    to[k] = static_cast<float>(std::to_integer<int>(from[k])) / 255.0F;
  }
  *static_cast<std::int64_t*>(target) =
      std::to_integer<std::int64_t>(labels_[static_cast<std::size_t>(i)]);
}

}  // namespace headroom::nn
