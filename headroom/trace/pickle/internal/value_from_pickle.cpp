#include "headroom/trace/pickle/internal/value_from_pickle.h"

#include <string>
#include <utility>

#include "headroom/trace/internal/failure.h"
#include "headroom/trace/pickle/internal/record.h"

namespace headroom::trace::internal {
namespace {

// Real ones nest three deep. Destroying and comparing a Value recurse, so this bounds them too.
constexpr int kMaxDepth = 64;

class Converter {
 public:
  Converter(const PickleData& data, Budget& budget) : data_(data), budget_(budget) {}

  [[nodiscard]] Value convert(Ref value, const Path& path, int depth) {
    switch (value.kind()) {
      case Kind::kAbsent:
      case Kind::kNone:
        return {};
      case Kind::kBool:
        return {value.index() != 0};
      case Kind::kInt:
      case Kind::kBigInt:
        return {data_.integer(value)};
      case Kind::kUnsigned:
        return {data_.unsigned_integer(value)};
      case Kind::kFloat:
        return {data_.real(value)};
      case Kind::kString:
        return {text(value)};
      default:
        return container(value, path, depth + 1);
    }
  }

 private:
  [[nodiscard]] std::string text(Ref value) {
    const std::string_view found = data_.text(value);
    budget_.take(found.size());
    return std::string(found);
  }

  [[nodiscard]] Value container(Ref value, const Path& path, int depth) {
    if (depth > kMaxDepth) {
      fail(path.text() + ": nests deeper than " + std::to_string(kMaxDepth) +
               " levels, or contains itself",
           data_.offset(value));
    }
    if (value.kind() == Kind::kDict) return {dict(value, path, depth)};
    Value::List items;
    const auto found = data_.items(value);
    budget_.spend_items(found.size());
    budget_.take(found.size() * sizeof(Value));
    items.reserve(found.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      items.push_back(convert(found[i], Path(path, i), depth));
    }
    if (value.kind() == Kind::kTuple) return {Value::Tuple{std::move(items)}};
    return {std::move(items)};
  }

  [[nodiscard]] Value::Dict dict(Ref value, const Path& path, int depth) {
    BigVector<Ref> keys(budget_);
    BigVector<Ref> values(budget_);
    const PickleData::Part* part = data_.first_part(value);
    for (; part != nullptr; part = data_.next_part(*part)) {
      const auto more = data_.keys(part->shape);
      const auto more_values = data_.values(*part);
      keys.insert(keys.end(), more.begin(), more.end());
      values.insert(values.end(), more_values.begin(), more_values.end());
    }
    Value::Dict out;
    const auto texts = checked_keys(data_, budget_, keys, path, data_.offset(value));
    budget_.spend_items(keys.size());
    budget_.take(keys.size() * sizeof(Value::Dict::value_type));
    out.reserve(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      out.emplace_back(text(keys[i]), convert(values[i], Path(path, texts[i]), depth));
    }
    return out;
  }

  const PickleData& data_;
  Budget& budget_;
};

}  // namespace

Value to_value(const PickleData& data, Ref value, const Path& path, Budget& budget) {
  return Converter(data, budget).convert(value, path, 0);
}

}  // namespace headroom::trace::internal
