#include "benchmarks/trace/bench_trace_files.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <zstd.h>

#include "headroom/base/error.h"
#include "headroom/trace/file.h"
#include "headroom/trace/hrt/hrt_reader.h"
#include "headroom/trace/hrt/hrt_writer.h"

#include "cli/input/samples.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSample = "gpt2_varlen.pickle.zst";

// A folder that goes when it is done with.
class ScratchFolder {
 public:
  ScratchFolder()
      : path_(fs::temp_directory_path() / ("headroom-bench-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

// `from` as it is before packing, for Python, which cannot unpack it.
void unpack(const std::string& from, const std::string& to) {
  std::ifstream in(from, std::ios::binary);
  const std::string packed{std::istreambuf_iterator<char>(in), {}};
  std::ofstream out(to, std::ios::binary);
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                     &ZSTD_freeDCtx);
  std::string buffer(ZSTD_DStreamOutSize(), '\0');
  ZSTD_inBuffer source{packed.data(), packed.size(), 0};
  while (source.pos < source.size) {
    ZSTD_outBuffer target{buffer.data(), buffer.size(), 0};
    const std::size_t left = ZSTD_decompressStream(context.get(), &target, &source);
    if (ZSTD_isError(left) != 0U) throw Error(from + " is not a valid zstd file");
    out.write(buffer.data(), static_cast<std::streamsize>(target.pos));
  }
  if (!out.flush()) throw Error("cannot write " + to);
}

double time_ms(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// As one word of a shell command, whatever is in it.
std::string shell_word(const std::string& text) {
  std::string out = "'";
  for (const char letter : text) out += letter == '\'' ? "'\\''" : std::string(1, letter);
  return out + "'";
}

// The time of pickle.load in a Python of its own, without the start of Python; nothing where there
// is no Python.
std::optional<double> python_load_ms(const std::string& path) {
  const std::string command = "HEADROOM_BENCH_FILE=" + shell_word(path) +
                              " python3 -c 'import os, pickle, time\n"
                              "with open(os.environ[\"HEADROOM_BENCH_FILE\"], \"rb\") as f:\n"
                              "    start = time.perf_counter()\n"
                              "    pickle.load(f)\n"
                              "    print((time.perf_counter() - start) * 1000)' 2>/dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::array<char, 64> line{};
  const bool has_line = std::fgets(line.data(), line.size(), pipe) != nullptr;
  const bool is_done = pclose(pipe) == 0;
  return has_line && is_done ? std::optional(std::atof(line.data())) : std::nullopt;
}

trace::Trace read_or_throw(const std::string& path) {
  auto read = trace::read_trace(path);
  if (!read) throw Error(path + ": " + to_string(read.error()));
  if (read->format != trace::Format::kPickle) {
    throw Error(path +
                " is not a PyTorch snapshot, which Python's pickle must be able to read too");
  }
  return std::move(read->trace);
}

struct Way {
  std::string name;
  std::uint64_t file_bytes;
  std::function<void()> work;
  std::vector<double> ms{};
  std::vector<double> ratios{};
};

void measure(std::vector<Way>& ways,
             const std::string& pickle,
             const TraceBenchOptions& options,
             const Progress& progress,
             TraceBench& bench) {
  std::vector<double> python_ms;
  for (int round = 0; round < options.rounds; ++round) {
    progress("reading and writing, round " + std::to_string(round + 1));
    const auto python = python_load_ms(pickle);
    if (python) python_ms.push_back(*python);
    for (Way& way : ways) {
      way.ms.push_back(time_ms(way.work));
      if (python) way.ratios.push_back(*python / way.ms.back());
    }
  }
  for (Way& way : ways) {
    bench.files.push_back(
        {.name = way.name, .file_bytes = way.file_bytes, .ms = spread_of(way.ms)});
    if (!way.ratios.empty()) bench.files.back().ratio = spread_of(way.ratios);
  }
  if (python_ms.empty()) {
    bench.notes.emplace_back("there is no python3 that loads the file, so nothing to compare with");
    return;
  }
  bench.files.push_back({.name = "Python's pickle.load",
                         .file_bytes = fs::file_size(pickle),
                         .ms = spread_of(python_ms)});
}

}  // namespace

void bench_files(const TraceBenchOptions& options, const Progress& progress, TraceBench& bench) {
  bench.file = options.file.empty() ? find_sample(kSample).value_or("") : options.file;
  if (bench.file.empty()) {
    bench.notes.push_back(std::string("the sample ") + kSample +
                          " is not here, so no file was read; --file names another snapshot");
    return;
  }
  const trace::Trace trace = read_or_throw(bench.file);
  bench.file_events = trace.event_count();
  const ScratchFolder folder;
  const std::string pickle = folder.file("snapshot.pickle");
  if (bench.file.ends_with(".zst")) {
    unpack(bench.file, pickle);
  } else {
    fs::copy_file(bench.file, pickle);
  }
  const auto hrt = trace::write_hrt(trace);
  const auto write = [&trace, &folder](const char* name) {
    const auto written = trace::write_trace(trace, folder.file(name), {.overwrite = true});
    if (!written) throw Error(to_string(written.error()));
  };
  write("written.pickle");
  std::vector<Way> ways{
      {"read pickle", fs::file_size(pickle), [&] { (void)read_or_throw(pickle); }},
      {"read the file given", fs::file_size(bench.file), [&] { (void)read_or_throw(bench.file); }},
      {"read .hrt", hrt.size(), [&] { (void)trace::parse_hrt(hrt).value(); }},
      {"write .hrt", hrt.size(), [&] { (void)trace::write_hrt(trace); }},
      {"write pickle", fs::file_size(folder.file("written.pickle")), [&] {
         write("written.pickle");
       }}};
  measure(ways, pickle, options, progress, bench);
}

}  // namespace headroom::cli
