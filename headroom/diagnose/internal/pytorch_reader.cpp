// Messages of PyTorch's own allocators, by device and release. Texts are squeezed: they have no
// blanks.
#include <algorithm>
#include <array>

#include "headroom/diagnose/internal/oom_writers.h"
#include "headroom/diagnose/internal/squeezed.h"

namespace headroom::diagnose::internal {
namespace {

using memory::PyTorchVersion;

constexpr PyTorchVersion kFirstWithSplitSize{1, 10};
constexpr PyTorchVersion kFirstWithCudaPool{2, 0};

void narrow(VersionRange& range,
            PyTorchVersion from,
            const std::optional<PyTorchVersion>& to = std::nullopt) {
  VersionRange out = range;
  out.from = std::max(out.from, from);
  if (to) out.to = out.to ? std::min(*out.to, *to) : *to;
  // The class of the exception may be somebody else's, who threw it again; the format is not.
  if (!out.to || out.from <= *out.to) range = out;
}

// `(GPU 0; 7.93 GiB total capacity; ...)`.
VersionRange bracket_versions(std::string_view text) {
  if (has(text, "cached)") || has(text, "cached;")) return {{1, 0}, PyTorchVersion{1, 3}};
  if (has(text, "max_split_size_mb")) return {kFirstWithSplitSize, PyTorchVersion{2, 0}};
  if (!has(text, "reservedintotal")) return {{1, 0}, PyTorchVersion{2, 0}};  // it was cut
  return {{1, 4}, PyTorchVersion{1, 9}};
}

VersionRange sentence_versions(std::string_view text) {
  VersionRange out{{2, 1}, std::nullopt};
  if (has(text, "totalcapactyof")) narrow(out, {2, 1}, PyTorchVersion{2, 2});
  if (has(text, "totalcapacityof")) narrow(out, {2, 2});
  if (has(text, "trysettingmax_split_size_mb")) narrow(out, {2, 1}, PyTorchVersion{2, 1});
  if (has(text, "_CONF=expandable_segments:True")) narrow(out, {2, 2});
  if (has(text, "PYTORCH_ALLOC_CONF=")) narrow(out, {2, 10}, PyTorchVersion{2, 10});
  if (has(text, "docs.pytorch.org")) narrow(out, {2, 11});
  if (has(text, "expandable_segmentsisenabled")) narrow(out, {2, 15});
  return out;
}

std::optional<VersionRange> versions_of(std::string_view before, std::string_view text) {
  const bool has_brackets = has(text, "totalcapacity;");
  if (!has_brackets && !has(text, "hasatotalcapac")) return std::nullopt;
  VersionRange out = has_brackets ? bracket_versions(text) : sentence_versions(text);
  if (before.ends_with("torch.OutOfMemoryError:")) narrow(out, {2, 5});
  if (before.ends_with("torch.cuda.OutOfMemoryError:")) {
    // Where the advice behind the brackets was cut off.
    if (has_brackets && out.to == PyTorchVersion{1, 9}) out.to = PyTorchVersion{2, 0};
    narrow(out, {1, 13}, PyTorchVersion{2, 4});
  }
  if (has_brackets && before.ends_with("RuntimeError:")) {
    narrow(out, {1, 0}, PyTorchVersion{1, 12});
  }
  return out;
}

std::string_view variable_of(const OomMessage& message, std::string_view text) {
  if (message.versions && message.versions->to && *message.versions->to < kFirstWithSplitSize) {
    return {};
  }
  if (has(text, "PYTORCH_ALLOC_CONF")) return "PYTORCH_ALLOC_CONF";
  switch (message.writer) {
    case Writer::kPyTorchCuda:
      return "PYTORCH_CUDA_ALLOC_CONF";
    case Writer::kPyTorchHip:
      return "PYTORCH_HIP_ALLOC_CONF";
    case Writer::kPyTorchNpu:
      return "PYTORCH_NPU_ALLOC_CONF";
    default:
      return {};
  }
}

// Intel's extension has a sentence of its own before the numbers.
Writer device_writer(Writer writer, std::string_view before, std::string_view text) {
  // A device of a vendor's plug-in has its name in capitals before the words: `MUSA`.
  const bool is_named = !before.empty() && before.back() >= 'A' && before.back() <= 'Z';
  if (writer == Writer::kPyTorchOther && !is_named) writer = Writer::kPyTorchCuda;
  if (before.ends_with("sizelargerthan4GB!")) return Writer::kPyTorchXpu;
  return writer == Writer::kPyTorchCuda && has(text, "(NPU") ? Writer::kPyTorchNpu : writer;
}

// `backend:cudaMallocAsync`: `Allocation on device 0 would exceed allowed memory. (out of memory)`,
// then a number a line. Others print only the first words of it.
std::optional<ReadMessage> read_cuda_pool(const Spot& spot,
                                          std::string_view before,
                                          std::string_view text) {
  ReadMessage out = plain_message(spot);
  if (!has(text.substr(0, 80), "wouldexceedallowedmemory")) {
    if (!before.ends_with("OutOfMemoryError:")) return std::nullopt;
    out.strength = Strength::kPartial;
    return out;
  }
  OomMessage& message = out.message;
  message.is_cuda_pool = true;
  message.versions = VersionRange{kFirstWithCudaPool, std::nullopt};
  if (before.ends_with("torch.OutOfMemoryError:")) narrow(*message.versions, {2, 5});
  if (before.ends_with("torch.cuda.OutOfMemoryError:")) {
    narrow(*message.versions, kFirstWithCudaPool, PyTorchVersion{2, 4});
  }
  memory::PyTorchMessage& numbers = message.numbers;
  const std::uint64_t device = number_behind(text, "Allocationondevice").value_or(0);
  numbers.device = device < 1024 ? static_cast<int>(device) : 0;
  numbers.asked_bytes = size_behind(text, "Requested:").value_or(0);
  numbers.allocated_bytes = size_behind(text, "Currentlyallocated:");
  numbers.total_bytes = size_behind(text, "Devicelimit:");
  numbers.free_bytes = size_behind(text, "Free(accordingtoCUDA):");
  // Without a fraction the limit is 2^64 bytes.
  const auto limit = size_behind(text, "memoryfraction):");
  if (limit && *limit < numbers.total_bytes.value_or(0)) numbers.limit_bytes = limit;
  return out;
}

// What a text that was cut lacks first: the words beside the number.
std::string_view missing_part(const memory::PyTorchMessage& numbers, std::string_view text) {
  const bool has_brackets = has(text, "totalcapacity;");
  if (!has_brackets && !has(text, "hasatotalcapac")) return {};  // it never had numbers
  if (!numbers.total_bytes) return "total capacity";
  if (has_brackets) {
    if (!numbers.allocated_bytes) return "already allocated";
    if (!numbers.free_bytes) return "free";
    return numbers.unallocated_bytes ? "" : "reserved in total by PyTorch";
  }
  if (!numbers.free_bytes) return "is free";
  if (!numbers.allocated_bytes) return "is allocated by PyTorch";
  return numbers.unallocated_bytes ? "" : "is reserved by PyTorch but unallocated";
}

// `see our docs about CUDA out of memory errors`: somebody writes about such messages.
bool is_prose(std::string_view before, std::string_view text) {
  constexpr std::string_view kWords = "outofmemory";
  const std::size_t at = text.find(kWords);
  if (at == std::string_view::npos) return false;
  const std::string_view behind = text.substr(at + kWords.size());
  const auto follows = [&](std::string_view word) { return behind.starts_with(word); };
  const auto leads = [&](std::string_view word) { return before.ends_with(word); };
  constexpr std::array<std::string_view, 5> kPlurals{
      "errors", "issues", "exceptions", "problems", "handling"};
  constexpr std::array<std::string_view, 8> kTopics{
      "about", "avoid", "avoiding", "prevent", "preventing", "handle", "handling", "incaseof"};
  return std::ranges::any_of(kPlurals, follows) || std::ranges::any_of(kTopics, leads);
}

// Whether ranks wrote into one another's lines: the numbers behind may be of either.
bool is_mixed(std::string_view text) {
  constexpr std::string_view kOnce = "totalcapac";
  const std::size_t first = text.find(kOnce);
  return first != std::string_view::npos && has(text.substr(first + 1), kOnce);
}

}  // namespace

std::optional<ReadMessage> read_pytorch(const Spot& spot,
                                        std::string_view before,
                                        std::string_view text) {
  if (text.starts_with("Allocationondevice")) return read_cuda_pool(spot, before, text);
  ReadMessage out = plain_message(spot);
  out.message.writer = device_writer(spot.writer, before, text);
  const auto numbers = memory::parse_pytorch_message(text);
  if (!numbers) {
    if (text.starts_with("Triedtoallocate") || is_prose(before, text)) return std::nullopt;
    out.strength = Strength::kPartial;
    return out;
  }
  out.message.numbers = *numbers;
  if (is_mixed(text)) out.message.numbers = {.asked_bytes = numbers->asked_bytes};
  out.message.versions = versions_of(before, text);
  const bool is_nvidia_or_amd =
      out.message.writer == Writer::kPyTorchCuda || out.message.writer == Writer::kPyTorchHip;
  if (!is_nvidia_or_amd) out.message.versions.reset();  // their formats are not dated here
  if (is_nvidia_or_amd && !is_mixed(text) && !numbers->is_absurd) {
    out.message.missing_part = missing_part(*numbers, text);
  }
  out.message.settings_variable = variable_of(out.message, text);
  return out;
}

ReadMessage read_mps(const Spot& spot, std::string_view text) {
  ReadMessage out = plain_message(spot);
  OomMessage& message = out.message;
  message.settings_variable = "PYTORCH_MPS_HIGH_WATERMARK_RATIO";
  if (const auto buffer = size_behind(text, "Invalidbuffersize:")) {
    message.numbers.asked_bytes = *buffer;
    message.settings_variable = {};  // Metal refused one buffer, whatever the limit is
    return out;
  }
  message.numbers.allocated_bytes = size_behind(text, "MPSallocated:");
  message.other_bytes = size_behind(text, "otherallocations:").value_or(0);
  message.numbers.limit_bytes = size_behind(text, "maxallowed:");
  message.numbers.asked_bytes = size_behind(text, "Triedtoallocate").value_or(0);
  if (message.numbers.limit_bytes) message.versions = VersionRange{{1, 13}, std::nullopt};
  if (message.numbers.asked_bytes == 0) out.strength = Strength::kPartial;
  return out;
}

}  // namespace headroom::diagnose::internal
