#include "headroom/trace/pickle/internal/pickle_opcodes.h"

#include <array>

#include <fmt/format.h>

namespace headroom::trace::internal {
namespace {

enum class Why : std::uint8_t { kData, kImports, kCalls, kOutside, kText, kBytes, kSet };

struct Row {
  std::uint8_t code;
  std::string_view name;
  Why why = Why::kData;
};

constexpr std::array kRows{
    Row{'(', "MARK"},
    Row{'.', "STOP"},
    Row{'0', "POP"},
    Row{'1', "POP_MARK"},
    Row{'2', "DUP"},
    Row{'N', "NONE"},
    Row{0x88, "NEWTRUE"},
    Row{0x89, "NEWFALSE"},
    Row{'J', "BININT"},
    Row{'K', "BININT1"},
    Row{'M', "BININT2"},
    Row{0x8a, "LONG1"},
    Row{0x8b, "LONG4"},
    Row{'G', "BINFLOAT"},
    Row{'X', "BINUNICODE"},
    Row{0x8c, "SHORT_BINUNICODE"},
    Row{0x8d, "BINUNICODE8"},
    Row{'T', "BINSTRING"},
    Row{'U', "SHORT_BINSTRING"},
    Row{']', "EMPTY_LIST"},
    Row{'a', "APPEND"},
    Row{'e', "APPENDS"},
    Row{'l', "LIST"},
    Row{')', "EMPTY_TUPLE"},
    Row{'t', "TUPLE"},
    Row{0x85, "TUPLE1"},
    Row{0x86, "TUPLE2"},
    Row{0x87, "TUPLE3"},
    Row{'}', "EMPTY_DICT"},
    Row{'s', "SETITEM"},
    Row{'u', "SETITEMS"},
    Row{'d', "DICT"},
    Row{'h', "BINGET"},
    Row{'j', "LONG_BINGET"},
    Row{'q', "BINPUT"},
    Row{'r', "LONG_BINPUT"},
    Row{0x94, "MEMOIZE"},
    Row{0x80, "PROTO"},
    Row{0x95, "FRAME"},
    Row{'c', "GLOBAL", Why::kImports},
    Row{0x93, "STACK_GLOBAL", Why::kImports},
    Row{'i', "INST", Why::kImports},
    Row{'R', "REDUCE", Why::kCalls},
    Row{'b', "BUILD", Why::kCalls},
    Row{'o', "OBJ", Why::kCalls},
    Row{0x81, "NEWOBJ", Why::kCalls},
    Row{0x92, "NEWOBJ_EX", Why::kCalls},
    Row{0x82, "EXT1", Why::kImports},
    Row{0x83, "EXT2", Why::kImports},
    Row{0x84, "EXT4", Why::kImports},
    Row{'P', "PERSID", Why::kOutside},
    Row{'Q', "BINPERSID", Why::kOutside},
    Row{0x97, "NEXT_BUFFER", Why::kOutside},
    Row{0x98, "READONLY_BUFFER", Why::kOutside},
    Row{'I', "INT", Why::kText},
    Row{'L', "LONG", Why::kText},
    Row{'F', "FLOAT", Why::kText},
    Row{'S', "STRING", Why::kText},
    Row{'V', "UNICODE", Why::kText},
    Row{'p', "PUT", Why::kText},
    Row{'g', "GET", Why::kText},
    Row{'B', "BINBYTES", Why::kBytes},
    Row{'C', "SHORT_BINBYTES", Why::kBytes},
    Row{0x8e, "BINBYTES8", Why::kBytes},
    Row{0x96, "BYTEARRAY8", Why::kBytes},
    Row{0x8f, "EMPTY_SET", Why::kSet},
    Row{0x90, "ADDITEMS", Why::kSet},
    Row{0x91, "FROZENSET", Why::kSet},
};

const Row* find(Opcode opcode) noexcept {
  for (const Row& row : kRows) {
    if (row.code == static_cast<std::uint8_t>(opcode)) return &row;
  }
  return nullptr;
}

}  // namespace

std::string name_of(Opcode opcode) {
  const Row* row = find(opcode);
  return row != nullptr ? std::string(row->name)
                        : fmt::format("{:#04x}", static_cast<unsigned>(opcode));
}

std::string_view refusal_of(Opcode opcode) noexcept {
  const Row* row = find(opcode);
  if (row == nullptr) return "is not an opcode of pickle: the file is damaged, or not a pickle";
  switch (row->why) {
    case Why::kImports:
      return "would import code, which a memory snapshot never needs: nothing was run";
    case Why::kCalls:
      return "would build an object or call a function, which a memory snapshot never needs: "
             "nothing was run";
    case Why::kOutside:
      return "refers to data outside of the file, which a memory snapshot never does";
    case Why::kText:
      return "belongs to protocol 0, which is not read: save the snapshot with protocol 2 to 5";
    case Why::kBytes:
      return "holds raw bytes, which a memory snapshot never does";
    case Why::kSet:
      return "makes a set, which a memory snapshot never holds";
    case Why::kData:
      break;
  }
  return "is not expected here";
}

}  // namespace headroom::trace::internal
