#include "headroom/train/data_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "headroom/base/error.h"

namespace headroom::train {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(path + ": cannot be read: " + std::strerror(errno));
  Bytes out((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) throw Error(path + ": cannot be read to its end");
  return out;
}

// A place for an example, without a state: the golden ratio's multiples lie evenly.
std::uint64_t scattered(std::uint64_t number, std::uint64_t seed, std::uint64_t count) {
  const std::uint64_t mixed = (number + seed * 7919 + 1) * 0x9e3779b97f4a7c15ULL;
  return (mixed >> 11U) % count;
}

class ByteExamples : public Examples {
 public:
  ByteExamples(Bytes bytes, std::uint64_t seed) : bytes_(std::move(bytes)), seed_(seed) {}

  std::int64_t numbers(std::uint64_t, std::span<float>, std::span<float>) const override {
    throw InvalidArgument("train: a file of bytes has no numbers");
  }
  void tokens(std::uint64_t example, std::span<std::int64_t> out) const override {
    const std::uint64_t places = bytes_.size() - out.size() + 1;
    const auto first = static_cast<std::ptrdiff_t>(scattered(example, seed_, places));
    std::copy_n(bytes_.begin() + first, out.size(), out.begin());
  }

 private:
  Bytes bytes_;
  std::uint64_t seed_;
};

// --- IDX: big-endian sizes behind a magic number, then the elements ------------------------------

std::uint64_t big_endian(const Bytes& bytes, std::size_t at) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < 4; ++i) out = out << 8U | bytes.at(at + i);
  return out;
}

// The elements of an IDX file of unsigned bytes, and how many are one item.
struct Idx {
  Bytes bytes;
  std::size_t start = 0;
  std::size_t items = 0;
  std::size_t each = 1;
};

Idx read_idx(const std::string& path) {
  Idx out{.bytes = read_bytes(path)};
  const Bytes& bytes = out.bytes;
  if (bytes.size() < 8 || bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] < 1 ||
      bytes[3] > 4 || bytes.size() < 4 + std::size_t{4} * bytes[3]) {
    throw Error(path + ": is not an IDX file of bytes (magic 00 00 08 at byte 0), as MNIST's are");
  }
  out.start = 4 + std::size_t{4} * bytes[3];
  out.items = static_cast<std::size_t>(big_endian(bytes, 4));
  std::uint64_t elements = out.items;
  for (std::size_t i = 1; i < bytes[3]; ++i) {
    const std::uint64_t size = big_endian(bytes, 4 + 4 * i);
    out.each *= static_cast<std::size_t>(size);
    elements = size != 0 && elements > bytes.size() / size ? bytes.size() + 1 : elements * size;
  }
  if (out.items == 0 || elements != bytes.size() - out.start) {
    throw Error(path + ": its header says " + std::to_string(elements) + " elements, and " +
                std::to_string(bytes.size() - out.start) + " are there");
  }
  return out;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const std::size_t at = text.rfind(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

class ImageExamples : public Examples {
 public:
  ImageExamples(const std::string& path, const ExampleShape& shape, std::uint64_t seed)
      : images_(read_idx(path)), seed_(seed) {
    const std::string beside = replaced(replaced(path, "images", "labels"), "idx3", "idx1");
    if (beside == path) {
      throw Error(path + ": its name has no 'images', so where its labels are is not known");
    }
    labels_ = read_idx(beside);
    std::uint64_t wanted = 1;
    for (const std::int64_t size : shape.input) wanted *= static_cast<std::uint64_t>(size);
    if (images_.each != wanted) {
      throw Error(path + ": its images have " + std::to_string(images_.each) +
                  " numbers, and the model reads " + std::to_string(wanted));
    }
    if (labels_.items != images_.items || labels_.each != 1) {
      throw Error(beside + ": has " + std::to_string(labels_.items) + " labels for " +
                  std::to_string(images_.items) + " images");
    }
    const auto most = *std::max_element(
        labels_.bytes.begin() + static_cast<std::ptrdiff_t>(labels_.start), labels_.bytes.end());
    if (most >= shape.classes) {
      throw Error(beside + ": has a label " + std::to_string(most) + ", and the model knows " +
                  std::to_string(shape.classes) + " classes");
    }
  }

  std::int64_t numbers(std::uint64_t example,
                       std::span<float> input,
                       std::span<float>) const override {
    const auto item = static_cast<std::size_t>(scattered(example, seed_, images_.items));
    const unsigned char* const pixels = images_.bytes.data() + images_.start + item * images_.each;
    std::transform(pixels, pixels + input.size(), input.begin(), [](unsigned char pixel) {
      return static_cast<float>(pixel) / 255.0F;
    });
    return labels_.bytes[labels_.start + item];
  }
  void tokens(std::uint64_t, std::span<std::int64_t>) const override {
    throw InvalidArgument("train: images have no tokens");
  }

 private:
  Idx images_;
  Idx labels_{};
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Examples> file_examples(const std::string& path,
                                        const ExampleShape& shape,
                                        std::uint64_t seed) {
  switch (shape.task) {
    case ExampleShape::Task::kClasses:
      return std::make_unique<ImageExamples>(path, shape, seed);
    case ExampleShape::Task::kNumbers:
      throw InvalidArgument("--data: this model learns from synthetic numbers only");
    default:
      break;
  }
  Bytes bytes = read_bytes(path);
  const auto least = static_cast<std::size_t>(shape.input[0]) + 1;
  if (bytes.size() < least) {
    throw Error(path + ": has " + std::to_string(bytes.size()) + " bytes, and one example takes " +
                std::to_string(least));
  }
  return std::make_unique<ByteExamples>(std::move(bytes), seed);
}

}  // namespace headroom::train
