// Dictionaries with known keys: a Schema names the keys, a Record is one dictionary seen through
// it.
//
// The keys of a dictionary are compared with the names once per shape; after that a field is an
// index. What has the wrong type is a Failure that names the field's path.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/trace/internal/budget.h"
#include "headroom/trace/pickle/internal/path.h"
#include "headroom/trace/pickle/internal/pickle_data.h"

namespace headroom::trace::internal {

// A field is an enumerator, numbered as the names of its schema are.
using Field = std::uint32_t;
inline constexpr std::size_t kMaxFields = 20;

// Where the fields are among the values of a shape.
struct Plan {
  static constexpr std::int32_t kMissing = -1;

  std::array<std::int32_t, kMaxFields> places{};
  bool has_unknown = false;  // keys that the schema does not name
};

class Record {
 public:
  Record(const PickleData& data,
         std::span<const std::string_view> names,
         const Plan& plan,
         std::span<const Ref> keys,
         std::span<const Ref> values,
         const Path& path,
         Ref dict)
      : data_(&data),
        names_(names),
        plan_(&plan),
        keys_(keys),
        values_(values),
        path_(&path),
        dict_(dict) {}

  // Absent if the dictionary has no such key.
  [[nodiscard]] Ref find(Field field) const {
    const std::int32_t place = plan_->places[field];
    return place == Plan::kMissing ? Ref{} : values_[static_cast<std::size_t>(place)];
  }

  // These fail if the field is missing ...
  [[nodiscard]] std::uint64_t size(Field field) const {  // an integer from 0 to 2^64 - 1
    const Ref value = find(field);
    if (value.kind() == Kind::kInt && value.small() >= 0) [[likely]] {
      return static_cast<std::uint64_t>(value.small());
    }
    return rare_size(field);
  }
  [[nodiscard]] std::int64_t integer(Field field) const {
    const Ref value = find(field);
    return value.kind() == Kind::kInt ? value.small() : rare_integer(field);
  }
  [[nodiscard]] int number(Field field) const;
  [[nodiscard]] Ref text(Field field) const {
    const Ref value = text_if(field);
    if (!value) fail_type(field, "a string");
    return value;
  }
  [[nodiscard]] Ref list(Field field) const {
    const Ref value = list_if(field);
    if (!value) fail_type(field, "a list");
    return value;
  }
  // ... these do not.
  [[nodiscard]] std::optional<std::uint64_t> size_if(Field field) const {
    return find(field) ? std::optional(size(field)) : std::nullopt;
  }
  [[nodiscard]] std::optional<bool> flag_if(Field field) const;
  [[nodiscard]] Ref text_if(Field field) const {
    const Ref value = find(field);
    if (value && value.kind() != Kind::kString) fail_type(field, "a string");
    return value;
  }
  [[nodiscard]] Ref list_if(Field field) const {
    const Ref value = find(field);
    if (value && value.kind() != Kind::kList) fail_type(field, "a list");
    return value;
  }

  [[nodiscard]] bool has_unknown() const noexcept { return plan_->has_unknown; }
  [[nodiscard]] std::span<const Ref> keys() const noexcept { return keys_; }
  [[nodiscard]] std::span<const Ref> values() const noexcept { return values_; }
  // The number of a key, or as many as there are names if the schema has no such key.
  [[nodiscard]] Field field_of(std::string_view key) const;
  [[nodiscard]] bool is_known(Field field) const noexcept { return field < names_.size(); }
  [[nodiscard]] const Path& path() const noexcept { return *path_; }
  [[nodiscard]] Path path_of(Field field) const { return {*path_, names_[field]}; }

  // "device_traces[0][17].size: expected an integer, found str".
  [[noreturn]] void fail_type(Field field, std::string_view expected) const;
  [[noreturn]] void fail_field(Field field, const std::string& message) const;

 private:
  [[nodiscard]] std::uint64_t rare_size(Field field) const;
  [[nodiscard]] std::int64_t rare_integer(Field field) const;

  const PickleData* data_;
  std::span<const std::string_view> names_;
  const Plan* plan_;
  std::span<const Ref> keys_;
  std::span<const Ref> values_;
  const Path* path_;
  Ref dict_;
};

class Schema {
 public:
  // `names` outlives this.
  Schema(const PickleData& data, Budget& budget, std::span<const std::string_view> names)
      : data_(data),
        budget_(budget),
        names_(names),
        plan_of_shape_(budget),
        plans_(budget),
        merged_keys_(budget),
        merged_values_(budget) {}

  // The dictionary seen through this schema, until the next one is opened.
  [[nodiscard]] Record open(Ref dict, const Path& path) {
    if (dict.kind() == Kind::kDict && !plan_of_shape_.empty()) [[likely]] {
      const PickleData::Part* part = data_.first_part(dict);
      if (part != nullptr && part->next == PickleData::kNoPart) {
        if (const std::uint32_t number = plan_of_shape_[part->shape]; number != 0) {
          budget_.spend_items(1);
          const auto keys = data_.keys(part->shape);
          const std::span<const Ref> values{data_.values(*part).data(), keys.size()};
          return {data_, names_, plans_[number - 1], keys, values, path, dict};
        }
      }
    }
    return open_new(dict, path);
  }

 private:
  [[nodiscard]] Record open_new(Ref dict, const Path& path);
  void make_plan(Plan& plan, std::span<const Ref> keys, const Path& path, Ref dict) const;
  [[nodiscard]] Record open_merged(Ref dict, const Path& path);

  const PickleData& data_;
  Budget& budget_;
  std::span<const std::string_view> names_;
  BigVector<std::uint32_t> plan_of_shape_;  // one more than its index; 0 where not made yet
  BigVector<Plan> plans_;
  // For a dictionary of several parts, or of none.
  Plan merged_plan_;
  BigVector<Ref> merged_keys_;
  BigVector<Ref> merged_values_;
};

// The keys as texts; fails where one is not a string or comes twice.
[[nodiscard]] BigVector<std::string_view> checked_keys(const PickleData& data,
                                                       Budget& budget,
                                                       std::span<const Ref> keys,
                                                       const Path& path,
                                                       std::uint64_t offset);

// "device_traces[0]: expected a list, found int"; the whole file has no path.
[[noreturn]] void fail_type(const Path& path,
                            std::string_view expected,
                            Ref found,
                            std::optional<std::uint64_t> offset);

}  // namespace headroom::trace::internal
