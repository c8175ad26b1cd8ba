#include "cli/program.h"

int main(int argc, char** argv) { return headroom::cli::run_program(argc, argv); }
