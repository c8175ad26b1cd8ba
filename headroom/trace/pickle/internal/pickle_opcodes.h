// The opcodes of Python's pickle, protocols 0 to 5: those that hold data, by name, and for the
// others the reason why a snapshot with one is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::trace::internal {

enum class Opcode : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinString = 'T',
  kShortBinString = 'U',
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kList = 'l',
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kDict = 'd',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kProto = 0x80,
  kFrame = 0x95,
};

// "BINGET", or "0xff" for a byte that is no opcode.
[[nodiscard]] std::string name_of(Opcode opcode);

// Why a file with this opcode is not read, as the end of a sentence that begins with its name.
[[nodiscard]] std::string_view refusal_of(Opcode opcode) noexcept;

}  // namespace headroom::trace::internal
