// Traces as files: any format in, by its content; any format out, by the name.
//
//   .pickle .pkl     a PyTorch snapshot     (.zst behind any of them packs it)
//   .hrt             ours: small, streamed while recording (docs/format/hrt.md)
//   .perfetto.json   Perfetto and Chrome    .speedscope.json   bytes by stack    .csv   the events
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/trace/format_error.h"
#include "headroom/trace/trace.h"

namespace headroom::trace {

enum class Format : std::uint8_t { kPickle, kHrt, kPerfetto, kSpeedscope, kCsv };

[[nodiscard]] std::string_view to_string(Format format) noexcept;

// Called now and then with what part of the work is done, 0 to 1.
using Progress = std::function<void(double)>;

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

[[nodiscard]] FormatResult<TraceFile> read_trace(const std::string& path,
                                                 const ReadOptions& options = {});

// What a name asks for; nothing where the ending is not known.
struct Target {
  Format format = Format::kPickle;
  bool is_packed = false;
};
[[nodiscard]] std::optional<Target> target_of(const std::string& path);

struct WriteOptions {
  bool overwrite = false;  // else an existing file is an error
  // The moment that .speedscope.json shows: after so many events; unset is the peak.
  std::optional<std::uint64_t> at_event{};
  Progress progress{};
};

// The file appears whole or not at all.
[[nodiscard]] FormatResult<void> write_trace(const Trace& trace,
                                             const std::string& path,
                                             const WriteOptions& options = {});

}  // namespace headroom::trace
