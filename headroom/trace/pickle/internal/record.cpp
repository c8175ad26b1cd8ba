#include "headroom/trace/pickle/internal/record.h"

#include <algorithm>
#include <limits>

#include "headroom/base/check.h"
#include "headroom/trace/internal/failure.h"

namespace headroom::trace::internal {
namespace {

constexpr std::string_view kInteger = "an integer";

bool is_integer(Ref value) noexcept {
  return value.kind() == Kind::kInt || value.kind() == Kind::kBigInt;
}

std::string with_path(const Path& path, const std::string& message) {
  const std::string where = path.text();
  return where.empty() ? message : where + ": " + message;
}

}  // namespace

void fail_type(const Path& path,
               std::string_view expected,
               Ref found,
               std::optional<std::uint64_t> offset) {
  fail(with_path(path, "expected ").append(expected).append(", found ").append(type_name(found)),
       offset);
}

BigVector<std::string_view> checked_keys(const PickleData& data,
                                         Budget& budget,
                                         std::span<const Ref> keys,
                                         const Path& path,
                                         std::uint64_t offset) {
  BigVector<std::string_view> texts(budget);
  texts.reserve(keys.size());
  for (const Ref key : keys) {
    if (key.kind() != Kind::kString) fail_type(path, "a string as key", key, offset);
    texts.push_back(data.text(key));
  }
  BigVector<std::string_view> sorted = texts;
  std::ranges::sort(sorted);
  const auto twin = std::ranges::adjacent_find(sorted);
  if (twin != sorted.end()) {
    fail(with_path(path, "the key '" + excerpt(*twin) + "' comes twice"), offset);
  }
  return texts;
}

void Record::fail_field(Field field, const std::string& message) const {
  fail(with_path(path_of(field), message), data_->offset(dict_));
}

void Record::fail_type(Field field, std::string_view expected) const {
  const Ref found = find(field);
  if (!found) {
    fail(with_path(*path_, "there is no '" + std::string(names_[field]) + "'"),
         data_->offset(dict_));
  }
  internal::fail_type(path_of(field), expected, found, data_->offset(dict_));
}

std::uint64_t Record::rare_size(Field field) const {
  const Ref value = find(field);
  if (value.kind() == Kind::kUnsigned) return data_->unsigned_integer(value);
  if (!is_integer(value)) fail_type(field, kInteger);
  const std::int64_t number = data_->integer(value);
  if (number < 0) {
    fail_field(field, "expected an integer from 0 on, found " + std::to_string(number));
  }
  return static_cast<std::uint64_t>(number);
}

std::int64_t Record::rare_integer(Field field) const {
  const Ref value = find(field);
  if (!is_integer(value)) fail_type(field, kInteger);
  return data_->integer(value);
}

int Record::number(Field field) const {
  const std::int64_t value = integer(field);
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    fail_field(field, "expected a small integer, found " + std::to_string(value));
  }
  return static_cast<int>(value);
}

std::optional<bool> Record::flag_if(Field field) const {
  const Ref value = find(field);
  if (!value) return std::nullopt;
  if (value.kind() != Kind::kBool) fail_type(field, "True or False");
  return value.index() != 0;
}

Field Record::field_of(std::string_view key) const {
  return static_cast<Field>(std::ranges::find(names_, key) - names_.begin());
}

void Schema::make_plan(Plan& plan, std::span<const Ref> keys, const Path& path, Ref dict) const {
  HEADROOM_ASSERT(names_.size() <= kMaxFields, "a plan has no place for so many fields");
  const auto texts = checked_keys(data_, budget_, keys, path, data_.offset(dict));
  plan.places.fill(Plan::kMissing);
  plan.has_unknown = false;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto found = std::ranges::find(names_, texts[i]);
    if (found == names_.end()) {
      plan.has_unknown = true;
    } else {
      plan.places[static_cast<std::size_t>(found - names_.begin())] = static_cast<std::int32_t>(i);
    }
  }
}

Record Schema::open_new(Ref dict, const Path& path) {
  if (dict.kind() != Kind::kDict) fail_type(path, "a dictionary", dict, data_.offset(dict));
  budget_.spend_items(1);
  const PickleData::Part* part = data_.first_part(dict);
  if (part == nullptr || data_.next_part(*part) != nullptr) return open_merged(dict, path);
  if (plan_of_shape_.empty()) plan_of_shape_.resize(data_.shape_count());
  std::uint32_t& number = plan_of_shape_[part->shape];
  const auto keys = data_.keys(part->shape);
  if (number == 0) {
    make_plan(plans_.emplace_back(), keys, path, dict);
    number = static_cast<std::uint32_t>(plans_.size());
  }
  return {data_, names_, plans_[number - 1], keys, data_.values(*part), path, dict};
}

Record Schema::open_merged(Ref dict, const Path& path) {
  merged_keys_.clear();
  merged_values_.clear();
  const PickleData::Part* part = data_.first_part(dict);
  for (; part != nullptr; part = data_.next_part(*part)) {
    const auto keys = data_.keys(part->shape);
    const auto values = data_.values(*part);
    budget_.spend_items(keys.size());
    merged_keys_.insert(merged_keys_.end(), keys.begin(), keys.end());
    merged_values_.insert(merged_values_.end(), values.begin(), values.end());
  }
  make_plan(merged_plan_, merged_keys_, path, dict);
  return {data_, names_, merged_plan_, merged_keys_, merged_values_, path, dict};
}

}  // namespace headroom::trace::internal
