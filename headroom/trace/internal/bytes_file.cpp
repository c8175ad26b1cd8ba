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
constexpr std::uint64_t kMostRoom = 1_GiB;

}  // namespace

void refuse_what_is_no_recording(std::span<const std::byte> start) {
  if (content_of(start) == Content::kOther) fail(describe_other(start));
}

Buffer read_whole(const std::string& path) {
  InputFile file(path);
  Buffer out;
  // Room for the whole file, and one byte more, to see the end without growing; bounded, because
  // some files lie. It is no memory before it is filled.
  const std::size_t said = std::min<std::uint64_t>(file.size_bytes(), kMostRoom) + 1;
  std::span<std::byte> room = out.room(std::max(said, kStartBytes));
  out.add(file.read(room.first(kStartBytes)));
  if (!is_zstd(out.bytes())) refuse_what_is_no_recording(out.bytes());
  if (out.size() < kStartBytes) return out;
  file.refuse_larger_than_memory();
  for (;;) {
    room = out.room(1);
    const std::size_t wanted = std::min(room.size(), std::max(said, kPieceBytes));
    const std::size_t got = file.read(room.first(wanted));
    out.add(got);
    if (got < wanted) return out;
  }
}

}  // namespace headroom::trace::internal
