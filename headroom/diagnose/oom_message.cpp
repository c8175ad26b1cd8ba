#include "headroom/diagnose/oom_message.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "headroom/base/checked.h"
#include "headroom/diagnose/internal/oom_writers.h"
#include "headroom/diagnose/internal/squeezed.h"

namespace headroom::diagnose {
namespace {

using internal::ReadMessage;
using internal::Spot;
using internal::Squeezed;
using internal::Strength;

constexpr std::size_t kLongestMessage = 16384;

struct Found {
  std::size_t at = 0;
  std::size_t line = 0;  // of the log, where other ranks may have written meanwhile
  Strength strength = Strength::kWhole;
  OomMessage message{};
};

std::optional<Found> read_at(const Squeezed& log, const Spot& spot, std::size_t end) {
  const std::string_view all = log.text;
  const Squeezed::Part part = log.part_at(spot.at);
  const std::size_t length = std::min(std::min(end, part.to) - spot.at, kLongestMessage);
  auto read =
      read_spot(spot, all.substr(part.from, spot.at - part.from), all.substr(spot.at, length));
  if (!read) return std::nullopt;
  Found out{.at = spot.at,
            .line = log.line_at(spot.at),
            .strength = read->strength,
            .message = std::move(read->message)};
  const std::string_view speaker = log.speaker_at(spot.at);
  if (!speaker.empty()) out.message.speakers.emplace_back(speaker);
  return out;
}

std::vector<Found> read_all(const Squeezed& log, const std::vector<Spot>& spots) {
  std::vector<Found> out;
  for (std::size_t i = 0; i < spots.size(); ++i) {
    const std::size_t end = i + 1 < spots.size() ? spots[i + 1].at : log.text.size();
    if (auto found = read_at(log, spots[i], end)) out.push_back(*std::move(found));
  }
  return out;
}

// `Killed` and the like, which have a line to themselves.
void add_words(const Squeezed& log, std::vector<Found>& out) {
  for (const Squeezed::Word& word : log.words) {
    const bool is_killed = word.word == "Killed";
    out.push_back({.at = word.at,
                   .line = log.line_at(word.at),
                   .strength = is_killed ? Strength::kHint : Strength::kPartial,
                   .message = {.writer = is_killed ? Writer::kKilled : Writer::kPython}});
  }
  std::ranges::stable_sort(out, {}, &Found::at);
}

// Hints alone leave room for what says `out of memory` in words that nobody has listed.
std::vector<Found> find_messages(const Squeezed& log) {
  std::vector<Found> out = read_all(log, internal::find_spots(log.text));
  add_words(log, out);
  const bool has_only_hints =
      std::ranges::all_of(out, [](const Found& one) { return one.strength == Strength::kHint; });
  if (!has_only_hints) return out;
  std::vector<Found> more = read_all(log, internal::find_hints(log.text));
  out.insert(out.end(), more.begin(), more.end());
  std::ranges::stable_sort(out, {}, &Found::at);
  return out;
}

// Libraries that say what they were about, and have the runtime's error in or beside their own.
bool speaks_for_runtime(Writer writer) {
  switch (writer) {
    case Writer::kCudaLibrary:
    case Writer::kNccl:
    case Writer::kCupy:
    case Writer::kJax:
    case Writer::kTensorFlow:
    case Writer::kVllm:
    case Writer::kOnnxRuntime:
    case Writer::kTensorRt:
    case Writer::kLlamaCpp:
    case Writer::kRmm:
    case Writer::kPaddle:
      return true;
    default:
      return false;
  }
}

// That one error was thrown on as another: the runtime's by a library, anything by Python.
bool is_cause_or_wrapping(const Found& one, const Found& of) {
  constexpr std::size_t kSameError = 600;
  if (of.strength != Strength::kWhole || &one == &of) return false;
  const std::size_t distance = one.at > of.at ? one.at - of.at : of.at - one.at;
  if (distance > kSameError) return false;
  const Writer writer = one.message.writer;
  if (writer == Writer::kPython) return one.strength == Strength::kPartial;
  const bool is_runtime = writer == Writer::kCudaRuntime || writer == Writer::kGpuRuntime;
  return is_runtime && speaks_for_runtime(of.message.writer);
}

// Echoes go where the message itself is there.
void drop_echoes(std::vector<Found>& found) {
  const bool has_more_than_hints =
      std::ranges::any_of(found, [](const Found& one) { return one.strength > Strength::kHint; });
  std::array<bool, kWriters> has_whole{};
  for (const Found& one : found) {
    if (one.strength == Strength::kWhole) {
      has_whole[static_cast<std::size_t>(one.message.writer)] = true;
    }
  }
  const auto is_told = [&](Writer writer) { return has_whole[static_cast<std::size_t>(writer)]; };
  // TensorFlow's allocator warns before JAX or TensorFlow fails.
  const auto is_echo = [&](const Found& one) {
    if (one.strength == Strength::kHint) return has_more_than_hints;
    if (one.strength == Strength::kWhole) return false;
    const Writer writer = one.message.writer;
    return is_told(writer) || (writer == Writer::kTensorFlow && is_told(Writer::kJax));
  };
  std::vector<Found> kept;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto near = [&](std::size_t k) {
      return k < found.size() && is_cause_or_wrapping(found[i], found[k]);
    };
    bool is_dropped = is_echo(found[i]);
    for (std::size_t step = 1; step <= 3 && !is_dropped; ++step) {
      is_dropped = near(i - step) || near(i + step);
    }
    if (!is_dropped) kept.push_back(found[i]);
  }
  found = std::move(kept);
}

std::string key_of(const OomMessage& message) {
  std::string out;
  const auto add = [&](std::uint64_t value) { out += std::to_string(value) + ","; };
  const memory::PyTorchMessage& numbers = message.numbers;
  add(static_cast<std::uint64_t>(message.writer));
  add(numbers.asked_bytes);
  add(static_cast<std::uint64_t>(numbers.device));
  for (const auto& value : {numbers.total_bytes,
                            numbers.free_bytes,
                            numbers.this_process_bytes,
                            numbers.limit_bytes,
                            numbers.allocated_bytes,
                            numbers.private_pool_bytes,
                            numbers.unallocated_bytes,
                            message.pid}) {
    add(value ? *value + 1 : 0);
  }
  for (const device::ProcessMemory& process : numbers.other_processes) {
    add(static_cast<std::uint64_t>(process.pid));
    add(process.used_bytes);
  }
  return out;
}

void add_speaker(OomMessage& message, const std::vector<std::string>& speakers) {
  constexpr std::size_t kMost = 64;
  for (const std::string& speaker : speakers) {
    const bool is_known = std::ranges::find(message.speakers, speaker) != message.speakers.end();
    if (!is_known && message.speakers.size() < kMost) message.speakers.push_back(speaker);
  }
}

// Each once, where it was last.
std::vector<OomMessage> distinct(std::vector<Found> found) {
  std::unordered_map<std::string, std::size_t> known;
  std::vector<Found> kept;
  for (Found& one : found) {
    const auto [place, is_new] = known.try_emplace(key_of(one.message), kept.size());
    if (is_new) {
      kept.push_back(std::move(one));
      continue;
    }
    Found& before = kept[place->second];
    before.line = std::max(before.line, one.line);
    ++before.message.count;
    add_speaker(before.message, one.message.speakers);
  }
  std::ranges::stable_sort(kept, {}, &Found::line);
  std::vector<OomMessage> out;
  out.reserve(kept.size());
  for (Found& one : kept) out.push_back(std::move(one.message));
  return out;
}

// Texts that people take for out-of-memory messages, without blanks, and what they are.
struct NearMiss {
  std::string_view words;
  std::string_view sentence;
};
constexpr NearMiss kNearMisses[] = {
    {"CUDNN_STATUS_INTERNAL_ERROR",
     "CUDNN_STATUS_INTERNAL_ERROR alone does not mean out of memory: it has other causes too. Look "
     "for an out-of-memory message before it"},
    {"CUDNN_STATUS_NOT_INITIALIZED",
     "CUDNN_STATUS_NOT_INITIALIZED alone does not mean out of memory: it has other causes too. "
     "Look "
     "for an out-of-memory message before it"},
    {"CUBLAS_STATUS_NOT_INITIALIZED",
     "CUBLAS_STATUS_NOT_INITIALIZED alone does not mean out of memory: it has other causes too. "
     "Look for an out-of-memory message before it"},
    {"CUSOLVER_STATUS_INTERNAL_ERROR",
     "CUSOLVER_STATUS_INTERNAL_ERROR alone does not mean out of memory: it has other causes too. "
     "Look for an out-of-memory message before it"},
    {"UnabletofindavalidcuDNNalgorithm",
     "cuDNN found no algorithm: too little memory for its workspace is a usual cause, a shape that "
     "it does not support another. Look for an out-of-memory message before it"},
    {"unabletofindanenginetoexecutethiscomputation",
     "cuDNN found no algorithm: too little memory for its workspace is a usual cause, a shape that "
     "it does not support another. Look for an out-of-memory message before it"},
    {"Dsttensorisnotinitialized",
     "TensorFlow could not copy a tensor to the GPU: a full GPU is the usual cause, but the text "
     "does not say so. Look for an out-of-memory message before it"},
    {"offreesystemmemory",
     "nothing failed: TensorFlow says that a tensor is large for the main memory that is free, and "
     "the program goes on"},
    {"outofresource:sharedmemory",
     "this is not about the card's memory: a kernel of Triton wants more of a multiprocessor's "
     "shared memory than the card has; smaller blocks or fewer stages (num_stages) need less"},
    {"usestoomuchshareddata",
     "this is not about the card's memory: a kernel wants more of a multiprocessor's shared memory "
     "than the card has"},
    {"toomanyresourcesrequestedforlaunch",
     "this is not about the card's memory: a kernel wants more registers or threads than a "
     "multiprocessor has"},
    {"Thecallerindicatesthatthisisnotafailure",
     "nothing failed: TensorFlow's allocator says that it could have been faster with more memory, "
     "and the program goes on"},
    {"illegalmemoryaccess",
     "this is not a shortage: a kernel used an address that is not its own. Run with "
     "CUDA_LAUNCH_BLOCKING=1 to see which"},
    {"Nospaceleftondevice", "this is about a disk: a file could not be written"},
    {"java.lang.OutOfMemoryError",
     "this is the heap of Java, which java -Xmx bounds; it is not about a GPU"},
    {"JavaScriptheapoutofmemory",
     "this is the heap of JavaScript, which node --max-old-space-size bounds; it is not about a "
     "GPU"},
};

std::string nothing_found(std::string_view text) {
  for (const NearMiss& miss : kNearMisses) {
    if (text.find(miss.words) != std::string_view::npos) return std::string(miss.sentence);
  }
  return "no out-of-memory message was found, such as 'CUDA out of memory. Tried to allocate ...'";
}

}  // namespace

std::string_view to_string(Writer writer) noexcept {
  constexpr std::array<std::string_view, kWriters> kNames{
      "pytorch_cuda", "pytorch_hip",   "pytorch_xpu",  "pytorch_npu", "pytorch_other",
      "pytorch_mps",  "pytorch_cpu",   "cuda_runtime", "hip_runtime", "cublas",
      "cudnn",        "cuda_library",  "nccl",         "cupy",        "jax",
      "tensorflow",   "vllm",          "kernel",       "cpp",         "python",
      "numpy",        "shared_memory", "killed",       "onnxruntime", "tensorrt",
      "llama_cpp",    "rmm",           "paddle",       "metal",       "sglang",
      "ray",          "gpu_runtime",   "headroom"};
  return kNames[static_cast<std::size_t>(writer)];
}

std::string_view to_string(RemedyKind kind) noexcept {
  constexpr std::array<std::string_view, 30> kNames{"expandable_segments",
                                                    "max_split_size",
                                                    "upgrade_pytorch",
                                                    "raise_limit",
                                                    "end_other_processes",
                                                    "find_own_process",
                                                    "use_less",
                                                    "empty_cache",
                                                    "mps_watermark",
                                                    "leave_room",
                                                    "see_who_holds",
                                                    "nccl_buffers",
                                                    "xla_fraction",
                                                    "xla_preallocation",
                                                    "tensorflow_growth",
                                                    "vllm_raise_share",
                                                    "vllm_lower_share",
                                                    "vllm_shorter_context",
                                                    "host_memory",
                                                    "container_limit",
                                                    "shared_memory_size",
                                                    "kernel_log",
                                                    "check_size",
                                                    "onnxruntime_arena",
                                                    "tensorrt_workspace",
                                                    "llama_cpp_fewer_layers",
                                                    "rmm_pool",
                                                    "sglang_share",
                                                    "ray_threshold",
                                                    "own_report"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool may_be_of(const OomMessage& message, const memory::PyTorchVersion& version) {
  const auto& range = message.versions;
  if (!range) return true;
  // Of 1.4 to 2.0 the format is the same, and the advice behind it is what tells them apart. People
  // leave it out.
  constexpr memory::PyTorchVersion kFirstWithReserved{1, 4};
  constexpr memory::PyTorchVersion kLastWithoutAdvice{1, 9};
  constexpr memory::PyTorchVersion kLastWithBrackets{2, 0};
  const bool is_open = range->from == kFirstWithReserved && range->to == kLastWithoutAdvice;
  const auto last = is_open ? std::optional(kLastWithBrackets) : range->to;
  return range->from <= version && (!last || version <= *last);
}

Result<OomLog, std::string> read_oom_log(std::string_view text,
                                         const std::optional<memory::PyTorchVersion>& version) {
  const Squeezed log = internal::squeeze(text);
  std::vector<Found> found = find_messages(log);
  drop_echoes(found);
  if (found.empty()) return Unexpected(nothing_found(log.text));
  OomLog out{.count = found.size()};
  out.messages = distinct(std::move(found));
  const internal::SeenSettings settings = internal::settings_in(log);
  for (OomMessage& message : out.messages) {
    if (is_pytorch_device(message.writer)) {
      internal::add_settings(message, settings);
      if (version) internal::add_version(message, *version);
    }
    internal::judge(message);
  }
  return out;
}

memory::Account account_of(const OomMessage& message) {
  memory::PyTorchMessage numbers = message.numbers;
  if (message.own == OwnProcess::kByArithmetic) {
    const auto is_own = [&](const device::ProcessMemory& process) {
      return static_cast<std::uint64_t>(process.pid) == message.own_candidates.front();
    };
    const auto own = std::ranges::find_if(numbers.other_processes, is_own);
    numbers.this_process_bytes = own->used_bytes;
    std::erase_if(numbers.other_processes, is_own);
  }
  memory::Account account = memory::account_of(numbers);
  if (message.writer == Writer::kPyTorchMps && numbers.limit_bytes) {
    // The limit is the whole device here.
    account.limit_bytes.reset();
    account.total_bytes = *numbers.limit_bytes;
    account.outside_bytes =
        std::min(message.other_bytes, saturating_subtract(account.total_bytes, account.reserved()));
    account.total_bytes = std::max(account.total_bytes, account.reserved());
    account.free_bytes = account.total_bytes - account.reserved() - account.outside_bytes;
  }
  return account;
}

}  // namespace headroom::diagnose
