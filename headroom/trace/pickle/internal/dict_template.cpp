#include "headroom/trace/pickle/internal/dict_template.h"

#include "headroom/trace/pickle/internal/pickle_opcodes.h"

namespace headroom::trace::internal {
namespace {

// The bytes of the value at `at`; 0 if it is not a plain one.
std::size_t length_of_value(const std::uint8_t* at) {
  switch (static_cast<Opcode>(at[0])) {
    case Opcode::kBinGet:
    case Opcode::kBinInt1:
      return 2;
    case Opcode::kBinInt2:
      return 3;
    case Opcode::kBinInt:
    case Opcode::kLongBinGet:
      return 5;
    case Opcode::kLong1:
    case Opcode::kShortBinUnicode:
      return 2U + at[1];
    default:
      return 0;
  }
}

std::uint32_t length_of_key(std::uint8_t opcode) {
  if (opcode == static_cast<std::uint8_t>(Opcode::kBinGet)) return 2;
  return opcode == static_cast<std::uint8_t>(Opcode::kLongBinGet) ? 5 : 0;
}

}  // namespace

bool DictTemplate::learn(const std::uint8_t* begin,
                         const std::uint8_t* end,
                         std::uint32_t its_shape) {
  size = 0;
  std::size_t count = 0;
  const std::uint8_t* at = begin;
  while (at < end && count < kMaxKeys) {
    Key& key = keys[count++];
    key.length = length_of_key(*at);
    if (key.length == 0) return false;
    key.mask = (std::uint64_t{1} << (8 * key.length)) - 1;
    std::memcpy(&key.bytes, at, sizeof(key.bytes));
    key.bytes &= key.mask;
    key.number = static_cast<std::uint32_t>(key.bytes >> 8U);
    at += key.length;
    const std::size_t length = at < end ? length_of_value(at) : 0;
    if (length == 0) return false;
    at += length;
    if (at < end && *at == static_cast<std::uint8_t>(Opcode::kMemoize)) ++at;
  }
  if (at != end) return false;
  size = count;
  shape = its_shape;
  return true;
}

}  // namespace headroom::trace::internal
