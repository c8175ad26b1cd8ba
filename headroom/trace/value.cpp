#include "headroom/trace/value.h"

namespace headroom::trace {

const Value* Value::find(std::string_view key) const noexcept {
  const auto* dict = std::get_if<Dict>(&data);
  if (dict == nullptr) return nullptr;
  for (const auto& [name, value] : *dict) {
    if (name == key) return &value;
  }
  return nullptr;
}

}  // namespace headroom::trace
