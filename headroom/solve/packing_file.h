// Problems of packing as tables of text, in the columns of MiniMalloc:
//
//   id,lower,upper,size[,alignment][,hint][,...]
//
// in any order; others are kept and mean nothing. A solution is the same table with a column
// `offset`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/result.h"
#include "headroom/solve/packing.h"

namespace headroom::solve {

struct PackingTable {
  std::vector<Buffer> buffers{};
  std::string header{};             // as written, without a column `offset`
  std::vector<std::string> rows{};  // the same, one for each buffer
};

// What is wrong with a table, and where: lines count from 1.
struct TableFault {
  std::size_t line = 0;
  std::string message{};  // what was found, and what to do
};

[[nodiscard]] Result<PackingTable, TableFault> parse_packing(std::string_view text);

[[nodiscard]] std::string solution_text(const PackingTable& table, const Offsets& offsets);

}  // namespace headroom::solve
