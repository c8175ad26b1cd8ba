// Environment variables, read strictly: unset is not an error, garbage is, and the message names
// the variable, quotes what it held and says what to write.
//
//   auto capacity = env_bytes("HEADROOM_CPU_CAPACITY");   // Result<optional<uint64_t>, string>
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headroom/base/result.h"

namespace headroom {

template <class T>
using EnvResult = Result<std::optional<T>, std::string>;

// Empty counts as unset.
[[nodiscard]] std::optional<std::string> env_string(const char* name);
[[nodiscard]] EnvResult<std::uint64_t> env_bytes(const char* name);
[[nodiscard]] EnvResult<std::int64_t> env_int(const char* name,
                                              std::int64_t low,
                                              std::int64_t high);
// Takes 1/0, true/false, yes/no, on/off, in any case.
[[nodiscard]] EnvResult<bool> env_flag(const char* name);

}  // namespace headroom
