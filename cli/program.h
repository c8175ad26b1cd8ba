// The frame of the program: reads the command line, runs one command, and is the one place that
// catches to print.
#pragma once

namespace headroom::cli {

// Everything main does; the exit status.
int run_program(int argc, char** argv) noexcept;

}  // namespace headroom::cli
