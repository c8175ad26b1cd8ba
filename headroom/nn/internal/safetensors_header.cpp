#include "headroom/nn/internal/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "headroom/base/checked.h"
#include "headroom/base/error.h"

namespace headroom::nn {
namespace internal {
namespace {

struct FormatName {
  DType dtype;
  std::string_view name;
};
constexpr std::array<FormatName, kDTypeCount> kNames{{{DType::kF32, "F32"},
                                                      {DType::kF64, "F64"},
                                                      {DType::kF16, "F16"},
                                                      {DType::kBF16, "BF16"},
                                                      {DType::kI32, "I32"},
                                                      {DType::kI64, "I64"},
                                                      {DType::kU8, "U8"},
                                                      {DType::kBool, "BOOL"},
                                                      {DType::kC64, "C64"}}};

std::optional<DType> dtype_of(std::string_view name) {
  for (const FormatName& known : kNames) {
    if (known.name == name) return known.dtype;
  }
  return std::nullopt;
}

std::string in_quotes(std::string_view name) { return "\"" + excerpt(name) + "\""; }

// Leaves the parser from any depth; parse_safetensors_header turns it into its result.
struct Refusal {
  FormatError error;
};

// The few kinds of JSON that a header is made of, with the place of each. Objects are read key by
// key, so that one that comes twice is seen.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::uint64_t data_bytes)
      : text_(text), data_bytes_(data_bytes) {}

  SafetensorsHeader run() {
    if (text_.empty() || text_[0] != '{') fail("the header is not a JSON object");
    for_each_key([this](const std::string& name, std::uint64_t at) {
      if (name == "__metadata__") {
        read_metadata();
      } else {
        read_entry(name, at);
      }
    });
    skip_space();
    if (at_ != text_.size()) fail("text after the end of the header");
    check_layout();
    return std::move(out_);
  }

 private:
  struct Placed {
    SafetensorsEntry entry;
    std::uint64_t at;  // of its name
  };

  [[noreturn]] void fail_at(std::uint64_t at, const std::string& message) const {
    throw Refusal{{.message = message, .offset = kLengthBytes + at}};
  }
  [[noreturn]] void fail(const std::string& message) const { fail_at(at_, message); }

  void skip_space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != 0) {
      ++at_;
    }
  }

  [[nodiscard]] bool take(char wanted) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail(std::string("'") + wanted + "' is missing");
  }

  // Calls f(key, where it is) at each value.
  template <class F>
  void for_each_key(F&& f) {
    expect('{');
    if (take('}')) return;
    std::set<std::string> seen;
    do {
      skip_space();
      const std::uint64_t at = at_;
      std::string key = read_string();
      if (!seen.insert(key).second) fail_at(at, in_quotes(key) + " comes twice");
      expect(':');
      f(key, at);
    } while (take(','));
    expect('}');
  }

  std::string read_string() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_];
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
      ++at_;
      if (c == '\\') {
        read_escape(out);
      } else {
        out += c;
      }
    }
    if (at_ == text_.size()) fail("a string has no end");
    ++at_;
    return out;
  }

  void read_escape(std::string& out) {
    constexpr std::string_view kEscapes = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (at_ == text_.size()) fail("a string has no end");
    const char c = text_[at_++];
    if (c == 'u') {
      append_utf8(read_code_point(), out);
      return;
    }
    const std::size_t found = kEscapes.find(c);
    if (found == std::string_view::npos) fail_at(at_ - 1, "an escape that JSON does not have");
    out += kMeanings[found];
  }

  std::uint32_t read_hex() {
    std::uint32_t out = 0;
    for (int i = 0; i < 4; ++i) {
      if (at_ == text_.size()) fail("a string has no end");
      const char c = text_[at_];
      const auto digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
      const bool is_digit =
          (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!is_digit) fail("\\u wants four hexadecimal digits");
      out = out * 16 + static_cast<std::uint32_t>(digit);
      ++at_;
    }
    return out;
  }

  std::uint32_t read_code_point() {
    const std::uint32_t high = read_hex();
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || text_.substr(at_, 2) != "\\u") fail("half of a surrogate pair");
    at_ += 2;
    const std::uint32_t low = read_hex();
    if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10U) + (low - 0xDC00);
  }

  static void append_utf8(std::uint32_t code, std::string& out) {
    const auto put = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
    if (code < 0x80) {
      put(code);
      return;
    }
    if (code < 0x800) {
      put(0xC0 | code >> 6U);
    } else if (code < 0x10000) {
      put(0xE0 | code >> 12U);
      put(0x80 | (code >> 6U & 0x3FU));
    } else {
      put(0xF0 | code >> 18U);
      put(0x80 | (code >> 12U & 0x3FU));
      put(0x80 | (code >> 6U & 0x3FU));
    }
    put(0x80 | (code & 0x3FU));
  }

  // Sizes and offsets are never negative, and whole.
  std::int64_t read_count() {
    skip_space();
    const std::uint64_t start = at_;
    std::int64_t out = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const int digit = text_[at_++] - '0';
      if (out > (std::numeric_limits<std::int64_t>::max() - digit) / 10) {
        fail_at(start, "a number does not fit into 63 bits");
      }
      out = out * 10 + digit;
    }
    if (at_ == start) fail("a whole number from 0 is wanted");
    if (at_ - start > 1 && text_[start] == '0') fail_at(start, "a number starts with 0");
    return out;
  }

  std::vector<std::int64_t> read_counts() {
    std::vector<std::int64_t> out;
    expect('[');
    if (take(']')) return out;
    do {
      out.push_back(read_count());
    } while (take(','));
    expect(']');
    return out;
  }

  void read_metadata() {
    for_each_key([this](const std::string& key, std::uint64_t) {
      skip_space();
      out_.metadata[key] = read_string();
    });
  }

  void read_entry(const std::string& name, std::uint64_t at) {
    Placed placed{.entry = {.name = name}, .at = at};
    std::set<std::string> missing{"dtype", "shape", "data_offsets"};
    for_each_key([&](const std::string& key, std::uint64_t key_at) {
      if (missing.erase(key) == 0) {
        fail_at(key_at, in_quotes(name) + " has " + in_quotes(key) + ", which the format does not");
      }
      skip_space();
      if (key == "dtype") {
        read_dtype(placed.entry);
      } else if (key == "shape") {
        read_shape(placed.entry);
      } else {
        read_offsets(placed.entry);
      }
    });
    if (!missing.empty()) fail_at(at, in_quotes(name) + " has no " + in_quotes(*missing.begin()));
    check_size(placed);
    placed_.push_back(std::move(placed));
  }

  void read_dtype(SafetensorsEntry& entry) {
    const std::uint64_t at = at_;
    const std::string name = read_string();
    const std::optional<DType> dtype = dtype_of(name);
    if (!dtype)
      fail_at(at, in_quotes(entry.name) + " is of type " + in_quotes(name) + ", which is not read");
    entry.dtype = *dtype;
  }

  void read_shape(SafetensorsEntry& entry) {
    const std::uint64_t at = at_;
    const std::vector<std::int64_t> sizes = read_counts();
    if (sizes.size() > static_cast<std::size_t>(kMaxDims)) {
      fail_at(at,
              in_quotes(entry.name) + " has " + std::to_string(sizes.size()) + " dimensions; " +
                  std::to_string(kMaxDims) + " are the most");
    }
    entry.shape = Shape(sizes);
  }

  void read_offsets(SafetensorsEntry& entry) {
    const std::uint64_t at = at_;
    const std::vector<std::int64_t> offsets = read_counts();
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      fail_at(at, in_quotes(entry.name) + " has data_offsets that are no range");
    }
    entry.offset = static_cast<std::uint64_t>(offsets[0]);
    entry.size_bytes = static_cast<std::uint64_t>(offsets[1] - offsets[0]);
    if (entry.offset + entry.size_bytes > data_bytes_) {
      fail_at(at,
              in_quotes(entry.name) + " ends at " + std::to_string(offsets[1]) + " of " +
                  std::to_string(data_bytes_) + " bytes of data");
    }
  }

  void check_size(const Placed& placed) const {
    const SafetensorsEntry& entry = placed.entry;
    std::optional<std::uint64_t> bytes = headroom::size_bytes(entry.dtype);
    for (const std::int64_t size : entry.shape) {
      if (bytes) bytes = checked_mul(*bytes, static_cast<std::uint64_t>(size));
    }
    // A size of 0 makes it nothing, whatever did not fit before.
    if (std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end()) bytes = 0;
    if (bytes == entry.size_bytes) return;
    fail_at(placed.at,
            in_quotes(entry.name) + " of " + std::string(format_name(entry.dtype)) +
                to_string(entry.shape) + " has " + std::to_string(entry.size_bytes) +
                " bytes of data");
  }

  // Tensors one behind the other, from the first byte of the data to the last.
  void check_layout() {
    std::stable_sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) {
      return a.entry.offset != b.entry.offset ? a.entry.offset < b.entry.offset
                                              : a.entry.size_bytes < b.entry.size_bytes;
    });
    std::uint64_t end = 0;
    for (Placed& placed : placed_) {
      SafetensorsEntry& entry = placed.entry;
      if (entry.offset != end) {
        fail_at(
            placed.at,
            in_quotes(entry.name) + " starts at " + std::to_string(entry.offset) +
                " of the data, " +
                (entry.offset < end ? "inside the one before" : "past the end of the one before") +
                " at " + std::to_string(end));
      }
      end += entry.size_bytes;
      entry.offset += kLengthBytes + text_.size();
      out_.entries.push_back(std::move(entry));
    }
    if (end == data_bytes_) return;
    throw Refusal{{.message = std::to_string(data_bytes_ - end) + " bytes of data are no tensor's",
                   .offset = kLengthBytes + text_.size() + end}};
  }

  std::string_view text_;
  std::uint64_t data_bytes_;
  std::uint64_t at_ = 0;
  std::vector<Placed> placed_{};
  SafetensorsHeader out_{};
};

std::string json_string(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4U];
      out += kHex[byte & 15U];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string entry_text(const SafetensorsEntry& entry) {
  std::string shape;
  for (const std::int64_t size : entry.shape) {
    shape += (shape.empty() ? "" : ",") + std::to_string(size);
  }
  return json_string(entry.name) + ":{\"dtype\":\"" + std::string(format_name(entry.dtype)) +
         "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(entry.offset) + "," +
         std::to_string(entry.offset + entry.size_bytes) + "]}";
}

}  // namespace

std::string_view format_name(DType dtype) noexcept {
  for (const FormatName& known : kNames) {
    if (known.dtype == dtype) return known.name;
  }
  return "";
}

std::string header_text(const SafetensorsHeader& header) {
  std::string json = "{";
  if (!header.metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      json += (json.back() == '{' ? "" : ",") + json_string(key) + ":" + json_string(value);
    }
    json += "}";
  }
  for (const SafetensorsEntry& entry : header.entries) {
    json += (json.size() == 1 ? "" : ",") + entry_text(entry);
  }
  json += "}";
  while (json.size() % kLengthBytes != 0) json += ' ';
  std::string out;
  for (std::uint64_t i = 0; i < kLengthBytes; ++i) {
    out += static_cast<char>(json.size() >> (8 * i) & 0xFFU);
  }
  return out + json;
}

}  // namespace internal

FormatResult<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> start,
                                                         std::uint64_t file_bytes) {
  using internal::kLengthBytes;
  const auto refuse = [](std::uint64_t at, const std::string& message) {
    return Unexpected(FormatError{.message = message, .offset = at});
  };
  if (file_bytes < kLengthBytes || start.size() < kLengthBytes) {
    return refuse(file_bytes, "the file ends before the length of its header");
  }
  std::uint64_t length = 0;
  for (std::uint64_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(start[i]) << (8 * i);
  }
  if (length > internal::kMaxHeaderBytes) {
    return refuse(0, "a header of " + std::to_string(length) + " bytes; 100,000,000 are the most");
  }
  if (length > file_bytes - kLengthBytes || length > start.size() - kLengthBytes) {
    return refuse(0,
                  "a header of " + std::to_string(length) + " bytes in a file of " +
                      std::to_string(file_bytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(start.data()) + kLengthBytes, length);
  try {
    return internal::HeaderParser(text, file_bytes - kLengthBytes - length).run();
  } catch (const internal::Refusal& refusal) {
    return Unexpected(refusal.error);
  }
}

}  // namespace headroom::nn
