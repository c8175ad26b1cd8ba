// Traces as files: any format in, by its content; any format out, by the name. The last three are
// exports, for other programs.
//
//   .pickle .pkl     a PyTorch snapshot     (.zst behind any of them packs it)
//   .hrt             ours: small, streamed while recording (docs/format/hrt.md)
//   .perfetto.json   Perfetto and Chrome    .speedscope.json   bytes by stack    .csv   the events
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/trace/format_error.h"
#include "headroom/trace/progress.h"
#include "headroom/trace/trace.h"

namespace headroom::trace {

enum class Format : std::uint8_t { kPickle, kHrt, kPerfetto, kSpeedscope, kCsv };

[[nodiscard]] std::string_view to_string(Format format) noexcept;

struct ReadOptions {
  Progress progress{};
};

struct TraceFile {
  Trace trace{};
  Format format = Format::kPickle;
  bool is_packed = false;        // by zstd around it
  std::uint64_t file_bytes = 0;  // on disk
  std::string note{};            // what is missing, e.g. the last block of a killed recording
};

// Errors here and below do not name the file, which the caller knows: "it is a directory ...".
[[nodiscard]] FormatResult<TraceFile> read_trace(const std::string& path,
                                                 const ReadOptions& options = {});

// The format that a name asks for; nothing where the ending is not known.
struct Target {
  Format format = Format::kPickle;
  bool is_packed = false;
};
[[nodiscard]] std::optional<Target> target_of(const std::string& path);

struct WriteOptions {
  bool overwrite = false;  // else an existing file is an error
  // Writes the formats that take an analysis of the recording; without it their names are refused.
  // analysis/export.h has it.
  std::function<void(Format format, std::ostream& out)> write_export{};
  Progress progress{};
};

// The file appears whole or not at all.
[[nodiscard]] FormatResult<void> write_trace(const Trace& trace,
                                             const std::string& path,
                                             const WriteOptions& options = {});

}  // namespace headroom::trace
