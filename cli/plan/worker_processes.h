// Work shared among processes: for what a process can do one at a time only. A plan puts its own
// tape before the tape of the whole process, so that threads cannot plan at once.
//
//   const auto texts = in_processes(100, [](std::size_t i) { return text_of_plan(i); }, told);
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace headroom::cli {

// Calls work(i) for every i below `count`, in one process per core, and returns the texts in the
// order of i. A text has no line end. `done` is told here, after each, how many there are.
// Changes that work() makes elsewhere are lost; an exception of it arrives here as an Error.
[[nodiscard]] std::vector<std::string> in_processes(
    std::size_t count,
    const std::function<std::string(std::size_t)>& work,
    const std::function<void(std::size_t)>& done);

}  // namespace headroom::cli
