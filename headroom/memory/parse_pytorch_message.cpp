#include "headroom/memory/parse_pytorch_message.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "headroom/base/bytes.h"

namespace headroom::memory {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Past a colour escape or the like; `at` is its first character.
std::size_t behind_escape(std::string_view text, std::size_t at) {
  ++at;
  if (at < text.size() && text[at] == '[') {
    ++at;
    while (at < text.size() && (text[at] < '@' || text[at] > '~')) ++at;
  }
  return std::min(at + 1, text.size());
}

// Past what torchrun puts before every line: `[rank3]:`.
std::size_t behind_rank(std::string_view text, std::size_t at) {
  constexpr std::string_view kRank = "[rank";
  if (!text.substr(at).starts_with(kRank)) return at;
  const std::size_t end = text.find("]:", at);
  if (end == std::string_view::npos || end - at > kRank.size() + 6) return at;
  return end + 2;
}

// Without blanks, line breaks and colours: a terminal breaks lines wherever it likes, in the middle
// of a number too.
std::string squeezed(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\x1b') {
      i = behind_escape(text, i);
    } else if (text[i] == '[' && behind_rank(text, i) != i) {
      i = behind_rank(text, i);
    } else {
      if (std::isspace(static_cast<unsigned char>(text[i])) == 0) out += text[i];
      ++i;
    }
  }
  return out;
}

struct Size {
  std::uint64_t bytes = 0;
  std::size_t length = 0;  // in the text
};

// `2.00GiB` at the start of the text.
std::optional<Size> leading_size(std::string_view text) {
  if (text.empty() || !is_digit(text.front())) return std::nullopt;  // `nan` is a number too
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || value < 0) return std::nullopt;
  const auto digits = static_cast<std::size_t>(end - text.data());
  // PyTorch never meant powers of ten by MB and GB, which are of releases before 1.0.
  const auto unit = leading_byte_unit(text.substr(digits));
  if (!unit) return std::nullopt;
  const double bytes = value * unit->bytes;
  // Sums of a few such numbers still fit.
  return Size{.bytes = bytes >= static_cast<double>(device::kAbsurdSize)
                           ? device::kAbsurdSize
                           : static_cast<std::uint64_t>(std::llround(bytes)),
              .length = digits + unit->name.size()};
}

// One message, from "Tried to allocate" on.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  [[nodiscard]] std::optional<std::uint64_t> behind(std::string_view words) const {
    const std::size_t at = text_.find(words);
    if (at == std::string_view::npos) return std::nullopt;
    const auto size = leading_size(text_.substr(at + words.size()));
    return size ? std::optional(size->bytes) : std::nullopt;
  }

  // The size that ends where the words begin.
  [[nodiscard]] std::optional<std::uint64_t> before(std::string_view words) const {
    const std::size_t at = text_.find(words);
    if (at == std::string_view::npos) return std::nullopt;
    std::size_t from = at;
    while (from > 0 && std::isalpha(static_cast<unsigned char>(text_[from - 1])) != 0) --from;
    while (from > 0 && (is_digit(text_[from - 1]) || text_[from - 1] == '.')) --from;
    // The full stop of the sentence before is none of the number's.
    while (from < at && text_[from] == '.') ++from;
    const auto size = leading_size(text_.substr(from));
    return size && from + size->length == at ? std::optional(size->bytes) : std::nullopt;
  }

  [[nodiscard]] bool has(std::string_view words) const {
    return text_.find(words) != std::string_view::npos;
  }

  [[nodiscard]] int device() const {
    int number = 0;
    for (std::size_t at = text_.find("PU"); at != std::string_view::npos;
         at = text_.find("PU", at + 1)) {  // GPU; NPU
      const std::string_view rest = text_.substr(at + 2);
      if (std::from_chars(rest.data(), rest.data() + rest.size(), number).ec == std::errc{}) break;
    }
    return number;
  }

  // `Process 42 has 1.00 GiB memory in use.`, as often as it comes.
  [[nodiscard]] std::vector<device::ProcessMemory> processes() const {
    std::vector<device::ProcessMemory> out;
    constexpr std::string_view kWord = "Process";
    for (std::size_t at = text_.find(kWord); at != std::string_view::npos;
         at = text_.find(kWord, at + 1)) {
      const std::string_view rest = text_.substr(at + kWord.size());
      device::ProcessMemory process;
      const auto [end, error] =
          std::from_chars(rest.data(), rest.data() + rest.size(), process.pid);
      if (error != std::errc{}) continue;
      const std::string_view behind = rest.substr(static_cast<std::size_t>(end - rest.data()));
      if (!behind.starts_with("has")) continue;
      const auto size = leading_size(behind.substr(3));
      if (!size) continue;
      process.used_bytes = size->bytes;
      out.push_back(std::move(process));
    }
    return out;
  }

 private:
  std::string_view text_;
};

std::optional<std::uint64_t> first_of(std::initializer_list<std::optional<std::uint64_t>> values) {
  for (const auto& value : values) {
    if (value) return value;
  }
  return std::nullopt;
}

// Since 2.1: sentences.
void read_sentences(const Reader& reader, PyTorchMessage& out) {
  // 2.1 and 2.2 misspelt it.
  out.total_bytes =
      first_of({reader.behind("hasatotalcapacityof"), reader.behind("hasatotalcapactyof")});
  out.free_bytes = first_of({reader.before("isfree"), reader.behind("ofwhich")});
  out.this_process_bytes = reader.behind("thisprocesshas");
  out.names_this_process = reader.has("thisprocesshas");
  out.other_processes = reader.processes();
  out.limit_bytes = reader.before("allowed;");
  out.allocated_bytes = reader.behind("Oftheallocatedmemory");
  out.private_pool_bytes = reader.before("allocatedinprivatepools");
  out.unallocated_bytes = reader.before("isreservedbyPyTorchbutunallocated");
}

// Before: `(GPU 0; 7.93 GiB total capacity; 6.84 GiB already allocated; 15.31 MiB free; 6.94 GiB
// reserved in total by PyTorch)`. Up to 1.3 the last number is not the total but what is cached
// beside the allocated: `3.79 GiB cached)`, or `3.79 GiB cached; 12.00 MiB inactive)`, a part of
// it.
void read_brackets(const Reader& reader, PyTorchMessage& out) {
  out.total_bytes = reader.before("totalcapacity");
  out.allocated_bytes = reader.before("alreadyallocated");
  out.free_bytes = reader.before("free;");
  out.limit_bytes = reader.before("allowed;");
  const auto reserved = reader.before("reservedintotalbyPyTorch");
  if (reserved && out.allocated_bytes) {
    out.unallocated_bytes = *reserved > *out.allocated_bytes ? *reserved - *out.allocated_bytes : 0;
  } else {
    out.unallocated_bytes = first_of({reader.before("cached)"), reader.before("cached;")});
  }
}

// A container that cannot see the others' numbers is told 2^64 - 1 bytes.
void drop_nonsense(PyTorchMessage& message) {
  const std::uint64_t most = message.total_bytes.value_or(device::kAbsurdSize - 1);
  std::erase_if(message.other_processes,
                [&](const device::ProcessMemory& process) { return process.used_bytes > most; });
  if (message.this_process_bytes && *message.this_process_bytes > most) {
    message.this_process_bytes.reset();
  }
}

Result<PyTorchMessage, std::string> read_message(std::string_view text, std::size_t messages) {
  const Reader reader(text);
  PyTorchMessage out{.device = reader.device(), .messages = messages};
  if (reader.has("Triedtoallocatemorethan1EB")) {
    out.is_absurd = true;
    return out;
  }
  const auto asked = reader.behind("Triedtoallocate");
  if (!asked) {
    return Unexpected(
        "the size behind 'Tried to allocate' cannot be read: paste the message whole");
  }
  out.asked_bytes = *asked;
  if (reader.has("totalcapacity;")) {
    read_brackets(reader, out);
  } else {
    read_sentences(reader, out);
  }
  out.is_expandable = reader.has("expandable_segmentsisenabled") ||
                      reader.has("exceedstheexpandable-segmentreserve");
  drop_nonsense(out);
  return out;
}

}  // namespace

Result<PyTorchMessage, std::string> parse_pytorch_message(std::string_view text) {
  constexpr std::string_view kTried = "Triedtoallocate";
  constexpr std::string_view kRejected = "preemptivelyrejected";
  const std::string all = squeezed(text);
  const std::size_t tried = all.rfind(kTried);
  const std::size_t rejected = all.rfind(kRejected);
  if (rejected != std::string::npos && (tried == std::string::npos || rejected > tried)) {
    const auto size = Reader(std::string_view(all).substr(rejected)).behind("Requestedsize:");
    if (size) return PyTorchMessage{.asked_bytes = *size, .is_rejection = true};
  }
  // The capacity is named by this message alone, so its first words may be missing.
  const bool is_ours =
      all.find("outofmemory") != std::string::npos || all.find("totalcapac") != std::string::npos;
  if (tried == std::string::npos || !is_ours) {
    return Unexpected(
        "this is no out-of-memory message of PyTorch: it has no 'CUDA out of memory. Tried to "
        "allocate ...'");
  }
  std::size_t messages = 0;
  for (std::size_t at = all.find(kTried); at != std::string::npos; at = all.find(kTried, at + 1)) {
    ++messages;
  }
  return read_message(std::string_view(all).substr(tried), messages);
}

Account account_of(const PyTorchMessage& message) {
  const std::uint64_t allocated = message.allocated_bytes.value_or(0);
  Account account{.device = {.kind = device::DeviceKind::kCuda, .index = message.device},
                  .cached_hard_bytes = message.unallocated_bytes.value_or(0),
                  .limit_bytes = message.limit_bytes,
                  .is_expandable = message.is_expandable,
                  .asked_bytes = message.asked_bytes,
                  .segment_asked_bytes = message.asked_bytes};
  // What private pools keep is in it: nothing outside of them can use that, under any setting.
  account.live_bytes[static_cast<std::size_t>(Category::kUnknown)] = allocated;
  // Rounded numbers may pass the card by a hair; what is free gives way.
  const std::uint64_t reserved = account.reserved();
  std::uint64_t free = message.free_bytes.value_or(0);
  const std::uint64_t total = message.total_bytes.value_or(reserved + free);
  free = std::min(free, total > reserved ? total - reserved : 0);
  std::vector<device::ProcessMemory> processes = message.other_processes;
  if (message.this_process_bytes) {
    processes.push_back({.used_bytes = *message.this_process_bytes, .name = {}, .is_self = true});
  }
  return with_device_lines(std::move(account),
                           {.free_bytes = free, .total_bytes = std::max(total, reserved)},
                           std::move(processes));
}

}  // namespace headroom::memory
