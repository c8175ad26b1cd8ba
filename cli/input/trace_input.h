// A recording named on the command line: read with progress, and complained about in one line.
#pragma once

#include <string>
#include <string_view>

#include "headroom/trace/file.h"

#include "cli/command.h"

namespace headroom::cli {

// Throws Error that names the file, what is wrong with it, where, and what to try.
[[nodiscard]] trace::TraceFile read_input(const std::string& path, const Context& context);

// Shows `doing` with how much is done, in whole percents, where somebody is watching.
[[nodiscard]] trace::Progress show_progress(std::string doing, const Context& context);

// `PyTorch snapshot`, `headroom recording`: what a format is called in a sentence.
[[nodiscard]] std::string_view format_title(trace::Format format) noexcept;

// The same for programs: `pickle`, `hrt`, `perfetto`, `speedscope`, `csv`.
[[nodiscard]] std::string_view format_id(trace::Format format) noexcept;

// As a shell takes it back: in quotes where it must be.
[[nodiscard]] std::string shell_word(std::string_view text);

// The path without the endings of trace files: `run.pickle.zst` is `run`.
[[nodiscard]] std::string without_endings(std::string_view path);

}  // namespace headroom::cli
