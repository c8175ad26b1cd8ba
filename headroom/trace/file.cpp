#include "headroom/trace/file.h"

#include <array>
#include <cstddef>
#include <new>
#include <ostream>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/new_file.h"
#include "headroom/trace/hrt/hrt_reader.h"
#include "headroom/trace/hrt/hrt_writer.h"
#include "headroom/trace/internal/bytes_file.h"
#include "headroom/trace/internal/failure.h"
#include "headroom/trace/internal/file_buffer.h"
#include "headroom/trace/internal/sniff.h"
#include "headroom/trace/internal/zstd_bytes.h"
#include "headroom/trace/pickle/pickle_reader.h"
#include "headroom/trace/pickle/pickle_writer.h"

namespace headroom::trace {
namespace {

using internal::Content;

using WriteFunction = FormatResult<std::string> (*)(const Trace&, const Progress&);

FormatResult<std::string> write_hrt_text(const Trace& trace, const Progress& /*progress*/) {
  try {
    const std::vector<std::byte> file = write_hrt(trace, {.level = 9});
    return std::string(reinterpret_cast<const char*>(file.data()), file.size());
  } catch (const InvalidArgument& error) {
    return Unexpected(FormatError{.message = error.what()});
  }
}

struct Ending {
  std::string_view text;
  Format format;
  WriteFunction write;  // none: an export
};

// One line for every ending that a file may be written under.
constexpr std::array kEndings{
    Ending{".pickle", Format::kPickle, write_pickle},
    Ending{".pkl", Format::kPickle, write_pickle},
    Ending{".hrt", Format::kHrt, write_hrt_text},
    Ending{".perfetto.json", Format::kPerfetto, nullptr},
    Ending{".speedscope.json", Format::kSpeedscope, nullptr},
    Ending{".csv", Format::kCsv, nullptr},
};

constexpr std::string_view kPackedEnding = ".zst";

const Ending* ending_of(std::string_view path, bool& is_packed) {
  is_packed = path.ends_with(kPackedEnding);
  if (is_packed) path.remove_suffix(kPackedEnding.size());
  for (const Ending& ending : kEndings) {
    if (path.ends_with(ending.text)) return &ending;
  }
  return nullptr;
}

// `progress` for a part of the work.
Progress within(const Progress& progress, double begin, double end) {
  if (!progress) return {};
  return [&progress, begin, end](double part) { progress(begin + (end - begin) * part); };
}

template <class T>
T value_or_throw(FormatResult<T> result) {
  if (!result) throw internal::Failure{std::move(result).error()};
  return std::move(*result);
}

template <class Work>
auto caught(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const internal::Failure& failure) {
    return Unexpected(failure.error);
  } catch (const Error& error) {  // of the file itself
    return Unexpected(FormatError{.message = error.what()});
  } catch (const std::bad_alloc&) {
    return Unexpected(FormatError{.message = "there is not enough memory for it"});
  }
}

TraceFile read_file(const std::string& path, const Progress& progress) {
  TraceFile out;
  internal::Buffer buffer = internal::read_whole(path);
  out.file_bytes = buffer.size();
  out.is_packed = internal::is_zstd(buffer.bytes());
  const double unpacked_at = out.is_packed ? 0.3 : 0;
  if (out.is_packed) {
    buffer = internal::unpack_zstd(
        buffer.bytes(), internal::refuse_what_is_no_recording, within(progress, 0, unpacked_at));
  }
  switch (internal::content_of(buffer.bytes())) {
    case Content::kPickle:
      out.format = Format::kPickle;
      out.trace = value_or_throw(parse_pickle(buffer.bytes(),
                                              {.note = &out.note,
                                               .progress = within(progress, unpacked_at, 1),
                                               .file_bytes = out.file_bytes}));
      break;
    case Content::kHrt:
      out.format = Format::kHrt;
      out.trace = value_or_throw(parse_hrt(buffer.bytes(),
                                           {.note = &out.note,
                                            .progress = within(progress, unpacked_at, 1),
                                            .file_bytes = out.file_bytes}));
      break;
    case Content::kOther:
      internal::fail(internal::describe_other(buffer.bytes()));
  }
  return out;
}

std::string made(const Ending& ending,
                 const Trace& trace,
                 const WriteOptions& options,
                 const Progress& progress) {
  if (ending.write != nullptr) return value_or_throw(ending.write(trace, progress));
  std::ostringstream out;
  options.write_export(ending.format, out);
  return std::move(out).str();
}

void write_file(const Trace& trace, const std::string& path, const WriteOptions& options) {
  bool is_packed = false;
  const Ending* ending = ending_of(path, is_packed);
  if (ending == nullptr) {
    internal::fail(
        "the name does not say the format: end it in .pickle, .hrt, .perfetto.json, "
        ".speedscope.json or .csv, with .zst behind it to pack it");
  }
  if (ending->write == nullptr && !options.write_export) {
    internal::fail(
        "that format is made from a recording, by `headroom convert`; end the name in .pickle or "
        ".hrt");
  }
  NewFile file(path, options.overwrite);  // before the work, which may be for nothing
  // Exports may be much larger than the trace: they go to the file as they are made.
  if (ending->write == nullptr && !is_packed) {
    internal::FileBuffer buffer(file);
    std::ostream out(&buffer);
    out.exceptions(std::ios::badbit);  // hands on what the file says is wrong
    options.write_export(ending->format, out);
    file.commit();
    return;
  }
  const std::string text =
      made(*ending, trace, options, within(options.progress, 0, is_packed ? 0.5 : 0.9));
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  if (is_packed) {
    internal::pack_zstd(bytes, [&file](std::span<const std::byte> part) { file.write(part); });
  } else {
    file.write(bytes);
  }
  file.commit();
  if (options.progress) options.progress(1);
}

}  // namespace

std::string_view to_string(Format format) noexcept {
  switch (format) {
    case Format::kPickle:
      return "PyTorch snapshot";
    case Format::kHrt:
      return "hrt";
    case Format::kPerfetto:
      return "Perfetto";
    case Format::kSpeedscope:
      return "speedscope";
    case Format::kCsv:
      return "CSV";
  }
  return "?";
}

FormatResult<TraceFile> read_trace(const std::string& path, const ReadOptions& options) {
  return caught([&]() -> FormatResult<TraceFile> { return read_file(path, options.progress); });
}

std::optional<Target> target_of(const std::string& path) {
  bool is_packed = false;
  const Ending* ending = ending_of(path, is_packed);
  if (ending == nullptr) return std::nullopt;
  return Target{.format = ending->format, .is_packed = is_packed};
}

FormatResult<void> write_trace(const Trace& trace,
                               const std::string& path,
                               const WriteOptions& options) {
  return caught([&]() -> FormatResult<void> {
    write_file(trace, path, options);
    return {};
  });
}

}  // namespace headroom::trace
