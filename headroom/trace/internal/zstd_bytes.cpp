#include "headroom/trace/internal/zstd_bytes.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>
#include <zstd.h>
#include <zstd_errors.h>

#include "headroom/trace/internal/failure.h"

namespace headroom::trace::internal {
namespace {

constexpr int kLevel = 3;  // higher ones are slower and, on snapshots, hardly smaller below 16
constexpr int kMaxWindowLog = 27;  // 128 MiB, zstd's own limit without --long
constexpr std::size_t kChunk = 1_MiB;

struct FreeDecoder {
  void operator()(ZSTD_DStream* stream) const noexcept { (void)ZSTD_freeDStream(stream); }
};
struct FreeEncoder {
  void operator()(ZSTD_CCtx* context) const noexcept { (void)ZSTD_freeCCtx(context); }
};

std::uint64_t limit_for(std::uint64_t packed_bytes) {
  return std::clamp(packed_bytes * kMaxUnpackedRatio, kAlwaysUnpackedBytes, kMaxUnpackedBytes);
}

}  // namespace

bool is_zstd(std::span<const std::byte> bytes) noexcept {
  constexpr std::uint32_t kMagic = ZSTD_MAGICNUMBER;
  return bytes.size() >= sizeof(kMagic) && std::memcmp(bytes.data(), &kMagic, sizeof(kMagic)) == 0;
}

Buffer unpack_zstd(std::span<const std::byte> packed,
                   const std::function<void(std::span<const std::byte>)>& check,
                   const Progress& progress) {
  const std::unique_ptr<ZSTD_DStream, FreeDecoder> stream(ZSTD_createDStream());
  if (!stream) throw std::bad_alloc();
  (void)ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  const std::uint64_t limit = limit_for(packed.size());
  Buffer out;
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  std::size_t left = 1;  // 0 at the end of a frame
  while (in.pos < in.size || left != 0) {
    const std::span<std::byte> room = out.room(kChunk).first(kChunk);
    ZSTD_outBuffer to{room.data(), room.size(), 0};
    const std::size_t before = in.pos;
    left = ZSTD_decompressStream(stream.get(), &to, &in);
    if (ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge) {
      fail(
          "it was packed with a window of more than 128MiB: unpack it first, with zstd -d "
          "--long=31",
          in.pos);
    }
    if (ZSTD_isError(left) != 0) {
      fail(std::string("the zstd data is damaged: ") + ZSTD_getErrorName(left), in.pos);
    }
    if (out.size() == 0 && to.pos != 0) check(room.first(to.pos));
    out.add(to.pos);
    if (out.size() > limit) {
      fail("the file unpacks to more than " + format_bytes(limit) +
               ", far more than recordings of " + format_bytes(packed.size()) +
               " do: unpack it yourself if you trust it",
           in.pos);
    }
    if (in.pos == before && to.pos == 0 && left != 0) {
      fail("the zstd data ends early: the file was cut off", in.pos);
    }
    if (progress) progress(static_cast<double>(in.pos) / static_cast<double>(in.size));
  }
  return out;
}

void pack_zstd(std::span<const std::byte> bytes,
               const std::function<void(std::span<const std::byte>)>& write) {
  const std::unique_ptr<ZSTD_CCtx, FreeEncoder> context(ZSTD_createCCtx());
  if (!context) throw std::bad_alloc();
  (void)ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  (void)ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  (void)ZSTD_CCtx_setPledgedSrcSize(context.get(), bytes.size());
  std::vector<std::byte> chunk(kChunk);
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  std::size_t left = 1;
  while (left != 0) {
    ZSTD_outBuffer to{chunk.data(), chunk.size(), 0};
    left = ZSTD_compressStream2(context.get(), &to, &in, ZSTD_e_end);
    if (ZSTD_isError(left) != 0)
      fail(std::string("zstd cannot pack it: ") + ZSTD_getErrorName(left));
    write(std::span(chunk).first(to.pos));
  }
}

}  // namespace headroom::trace::internal
