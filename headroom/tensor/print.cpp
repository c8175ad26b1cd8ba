// Tensors as PyTorch prints them: four decimals, columns aligned, long ones with their ends only.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "headroom/tensor/tensor.h"

namespace headroom {
namespace {

constexpr std::int64_t kMostElements = 1000;
constexpr std::int64_t kEnds = 3;
constexpr int kLineWidth = 80;

std::string format(const char* pattern, double value) {
  std::array<char, 64> text{};
  (void)std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

// How all elements of one tensor are written.
struct Style {
  DType dtype = DType::kF32;
  bool is_whole = true;
  bool is_scientific = false;
  std::size_t width = 0;

  [[nodiscard]] std::string plain(double value) const {
    if (dtype == DType::kBool) return value != 0 ? "true" : "false";
    if (!is_floating(dtype)) return format("%.0f", value);
    if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    if (is_scientific) return format("%.4e", value);
    return is_whole ? format("%.0f.", value) : format("%.4f", value);
  }
  [[nodiscard]] std::string operator()(double value) const {
    const std::string text = plain(value);
    return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
  }
};

Style style_for(DType dtype, const std::vector<double>& shown) {
  Style style{.dtype = dtype};
  double low = INFINITY;
  double high = 0;
  for (const double value : shown) {
    if (!std::isfinite(value)) continue;
    style.is_whole = style.is_whole && value == std::floor(value);
    if (value == 0) continue;
    low = std::min(low, std::abs(value));
    high = std::max(high, std::abs(value));
  }
  if (is_floating(dtype) && high > 0) {
    style.is_scientific = high > 1e8 || (!style.is_whole && (high / low > 1000 || low < 1e-4));
  }
  for (const double value : shown) style.width = std::max(style.width, style.plain(value).size());
  return style;
}

// Writes a tensor part by part.
class Printer {
 public:
  explicit Printer(const Tensor& tensor)
      : summarizes_(tensor.numel() > kMostElements), shape_(tensor.shape()) {
    shorten(tensor);
    const bool has_parts = is_complex(tensor.dtype());
    style_ = style_for(has_parts ? DType::kF32 : tensor.dtype(), values_);
    if (has_parts) imaginary_style_ = style_for(DType::kF32, imaginary_);
  }

  std::string run() {
    if (shape_.empty()) return item();
    return block(0, 8);  // under the word tensor(
  }

 private:
  // Which of a dimension are shown; -1 stands for what is left out.
  [[nodiscard]] std::vector<std::int64_t> shown(std::int64_t size) const {
    std::vector<std::int64_t> out;
    const bool cut = summarizes_ && size > 2 * kEnds;
    for (std::int64_t i = 0; i < size; ++i) {
      if (!cut || i < kEnds || i >= size - kEnds) out.push_back(i);
      if (cut && i == kEnds) out.push_back(-1);
    }
    return out;
  }

  // "1.0000-2.0000j": parts in columns of their own, the sign always there.
  std::string item() {
    const std::size_t at = next_++;
    std::string out = shape_.empty() ? style_.plain(values_.at(at)) : style_(values_.at(at));
    if (imaginary_.empty()) return out;
    const std::string part = imaginary_style_.plain(imaginary_[at]);
    return out + (part[0] == '-' ? "" : "+") + part + "j";
  }

  // Reads only what is shown: the rest of a long tensor stays where it is.
  void shorten(const Tensor& part) {
    if (is_complex(part.dtype()) && (!summarizes_ || part.dim() == 0)) {
      for (const Complex64 value : part.to_complex()) {
        values_.push_back(value.real());
        imaginary_.push_back(value.imag());
      }
      return;
    }
    if (!summarizes_ || part.dim() == 0) {
      const std::vector<double> all = part.to_doubles();
      values_.insert(values_.end(), all.begin(), all.end());
      return;
    }
    for (const std::int64_t i : shown(part.size(0))) {
      if (i >= 0) shorten(part.detach().select(0, i));
    }
  }

  std::string block(int dim, std::size_t indent) {
    const bool is_row = dim == shape_.size() - 1;
    std::string out = "[";
    const std::string between =
        is_row ? ", "
               : "," + std::string(static_cast<std::size_t>(shape_.size() - 1 - dim), '\n') +
                     std::string(indent, ' ');
    std::size_t line = indent;
    bool is_first = true;
    for (const std::int64_t i : shown(shape_[dim])) {
      std::string text = i < 0    ? (is_row ? " ..." : "...")
                         : is_row ? item()
                                  : block(dim + 1, indent + 1);
      if (!is_first) out += between;
      if (is_row && !is_first && line + text.size() + 2 > kLineWidth) {
        out.back() = '\n';
        out += std::string(indent, ' ');
        line = indent;
      }
      line += text.size() + 2;
      out += text;
      is_first = false;
    }
    return out + "]";
  }

  bool summarizes_;
  Shape shape_;
  Style style_{};
  Style imaginary_style_{};
  std::vector<double> values_{};
  std::vector<double> imaginary_{};  // of complex numbers
  std::size_t next_ = 0;
};

// Properties that do not follow from the elements themselves.
std::string suffix(const Tensor& tensor) {
  std::string out;
  const DType dtype = tensor.dtype();
  if (dtype != DType::kF32 && dtype != DType::kI64 && dtype != DType::kBool &&
      dtype != DType::kC64) {
    out += ", dtype=" + std::string(to_string(dtype));
  }
  if (tensor.device().id() != device::DeviceId{}) {
    out += ", device='" + to_string(tensor.device().id()) + "'";
  }
  if (tensor.requires_grad()) out += ", requires_grad=true";
  return out;
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "tensor(undefined)";
  if (tensor.is_meta())
    return "tensor(..., size=" + to_string(tensor.shape()) + suffix(tensor) + ")";
  if (tensor.numel() == 0) {
    const bool is_plain = tensor.dim() == 1;
    return "tensor([]" + (is_plain ? "" : ", size=" + to_string(tensor.shape())) + suffix(tensor) +
           ")";
  }
  return "tensor(" + Printer(tensor).run() + suffix(tensor) + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << to_string(tensor);
}

}  // namespace headroom
