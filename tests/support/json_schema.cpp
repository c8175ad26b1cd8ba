#include "tests/support/json_schema.h"

#include <set>

namespace headroom::testing {
namespace {

using Json = nlohmann::json;

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  return type == "null" && value.is_null();
}

bool has_one_of_types(const Json& value, const Json& types) {
  if (types.is_string()) return has_type(value, types.get<std::string>());
  for (const Json& type : types) {
    if (has_type(value, type.get<std::string>())) return true;
  }
  return false;
}

std::string join(std::string at, const std::string& name) { return at.append("/").append(name); }

class Checker {
 public:
  explicit Checker(const Json& root) : root_(root) {}

  void check(const Json& schema, const Json& value, const std::string& at) {
    if (schema.contains("$ref")) {
      const std::string ref = schema["$ref"].get<std::string>();
      return check(root_.at(Json::json_pointer(ref.substr(1))), value, at);
    }
    check_keywords(schema, at);
    if (schema.contains("type") && !has_one_of_types(value, schema["type"])) {
      complain(at, "is not of type " + schema["type"].dump());
    }
    if (schema.contains("const") && value != schema["const"]) {
      complain(at, "is not " + schema["const"].dump());
    }
    if (schema.contains("enum") && !is_listed(schema, value)) {
      complain(at, "is none of " + schema["enum"].dump());
    }
    if (schema.contains("minimum") && value.is_number() && value < schema["minimum"]) {
      complain(at, "is below " + schema["minimum"].dump());
    }
    if (value.is_object()) check_object(schema, value, at);
    if (value.is_array()) check_array(schema, value, at);
  }

  [[nodiscard]] std::vector<std::string> take() { return std::move(mismatches_); }

 private:
  static bool is_listed(const Json& schema, const Json& value) {
    for (const Json& listed : schema["enum"]) {
      if (listed == value) return true;
    }
    return false;
  }

  void check_keywords(const Json& schema, const std::string& at) {
    static const std::set<std::string> known{"$schema",
                                             "$defs",
                                             "title",
                                             "description",
                                             "type",
                                             "const",
                                             "properties",
                                             "required",
                                             "items",
                                             "enum",
                                             "minimum",
                                             "additionalProperties"};
    for (const auto& [keyword, rule] : schema.items()) {
      if (!known.contains(keyword)) complain(at, "has a schema with the unknown word " + keyword);
    }
  }

  void check_object(const Json& schema, const Json& value, const std::string& at) {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) complain(at, "lacks " + name.dump());
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [name, member] : value.items()) {
      const std::string where = join(at, name);
      if (properties.contains(name)) {
        check(properties[name], member, where);
      } else if (schema.contains("additionalProperties")) {
        check(schema["additionalProperties"], member, where);
      } else {
        complain(where, "is not in the schema");
      }
    }
  }

  void check_array(const Json& schema, const Json& value, const std::string& at) {
    if (!schema.contains("items")) return complain(at, "is an array the schema says nothing about");
    for (std::size_t i = 0; i < value.size(); ++i) {
      check(schema["items"], value[i], join(at, std::to_string(i)));
    }
  }

  void complain(const std::string& at, const std::string& what) {
    mismatches_.push_back((at.empty() ? "/" : at) + ": " + what);
  }

  const Json& root_;
  std::vector<std::string> mismatches_;
};

}  // namespace

std::vector<std::string> schema_mismatches(const nlohmann::json& schema,
                                           const nlohmann::json& value) {
  Checker checker(schema);
  checker.check(schema, value, "");
  return checker.take();
}

}  // namespace headroom::testing
