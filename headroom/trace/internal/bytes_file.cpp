#include "headroom/trace/internal/bytes_file.h"

#include <algorithm>
#include <span>

#include "headroom/base/bytes.h"
#include "headroom/base/input_file.h"
#include "headroom/trace/internal/failure.h"
#include "headroom/trace/internal/sniff.h"
#include "headroom/trace/internal/zstd_bytes.h"

namespace headroom::trace::internal {
namespace {

constexpr std::size_t kStartBytes = 4_KiB;
constexpr std::size_t kPieceBytes = 1_MiB;

}  // namespace

void refuse_what_is_no_recording(std::span<const std::byte> start) {
  if (content_of(start) == Content::kOther) fail(describe_other(start));
}

Buffer read_whole(const std::string& path) {
  InputFile file(path);
  Buffer out;
  // The whole file at once where it is known, and one more, to see the end without growing.
  const std::size_t said = file.size_bytes() + 1;
  std::size_t wanted = kStartBytes;
  for (;;) {
    const std::size_t got = file.read(out.room(wanted).first(wanted));
    const bool is_start = out.size() == 0;
    out.add(got);
    if (is_start && !is_zstd(out.bytes())) refuse_what_is_no_recording(out.bytes());
    if (got < wanted) return out;
    if (is_start) file.refuse_larger_than_memory();
    wanted = std::max(kPieceBytes, is_start && said > kStartBytes ? said - kStartBytes : 0);
  }
}

}  // namespace headroom::trace::internal
