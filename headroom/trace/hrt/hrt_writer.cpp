#include "headroom/trace/hrt/hrt_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <zstd.h>

#include "headroom/base/check.h"
#include "headroom/trace/hrt/internal/byte_stream.h"
#include "headroom/trace/hrt/internal/crc32c.h"
#include "headroom/trace/hrt/internal/hrt_format.h"
#include "headroom/trace/hrt/internal/hrt_items.h"

namespace headroom::trace {

using internal::BlockHeader;
using internal::BlockKind;
using internal::ByteWriter;

namespace {

// Blocks of tables are closed from here on.
constexpr std::size_t kBlockTargetBytes = std::size_t{1} << 20U;

struct FreeEncoder {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
};

// zstd, and where it packs better than a reader believes, an empty frame of zstd's own to fill up.
class Packer {
 public:
  explicit Packer(int level) : level_(level), context_(ZSTD_createCCtx()) {
    HEADROOM_CHECK(context_ != nullptr, "zstd has no memory for its state");
  }

  std::span<const std::byte> pack(std::span<const std::byte> raw) {
    packed_.resize(ZSTD_compressBound(raw.size()));
    const std::size_t size = ZSTD_compressCCtx(
        context_.get(), packed_.data(), packed_.size(), raw.data(), raw.size(), level_);
    HEADROOM_CHECK(ZSTD_isError(size) == 0U, "zstd packs any bytes into a large enough buffer");
    packed_.resize(size);
    pad(raw.size() / internal::kMostExpansion + 1);
    return packed_;
  }

 private:
  void pad(std::size_t least_bytes) {
    if (packed_.size() >= least_bytes) return;
    constexpr std::size_t kFrameHeader = 8;
    const std::size_t missing = std::max(least_bytes - packed_.size(), kFrameHeader);
    ByteWriter frame;
    frame.fixed(ZSTD_MAGIC_SKIPPABLE_START, 4);
    frame.fixed(missing - kFrameHeader, 4);
    const std::size_t end = packed_.size();
    packed_.resize(end + missing);
    std::memcpy(packed_.data() + end, frame.bytes().data(), kFrameHeader);
  }

  int level_;
  std::unique_ptr<ZSTD_CCtx, FreeEncoder> context_;
  std::vector<std::byte> packed_;
};

}  // namespace

class HrtWriter::Impl {
 public:
  Impl(const Trace& trace, ByteSink sink, HrtOptions options)
      : tables(trace), options_(options), sink_(std::move(sink)), packer_(options.level) {
    emit(internal::file_header());
  }

  void restart() {
    index_.clear();
    blocks_ = written_ = table_bytes_ = 0;
    strings_ = values_ = stacks_ = details_ = 1;
    frames_ = 0;
    emit(internal::file_header());
  }

  // Writes `body_` as a block, and empties it.
  void block(BlockKind kind, BlockHeader header) {
    const auto packed = packer_.pack(body_.bytes());
    header.kind = static_cast<std::uint8_t>(kind);
    header.flags |= internal::kFlagPacked;
    header.stored_bytes = static_cast<std::uint32_t>(packed.size());
    header.raw_bytes = static_cast<std::uint32_t>(body_.size());
    header.body_checksum = internal::crc32c(packed);
    stored_block(header, packed);
    body_.clear();
  }

  // A body as it lies in a file.
  void stored_block(BlockHeader header, std::span<const std::byte> body) {
    header.number = static_cast<std::uint32_t>(blocks_++);
    const internal::BlockHeaderBytes bytes = internal::to_bytes(header);
    index_.fixed(written_, 8);
    index_.raw(bytes);
    // In one piece, so that a process that dies leaves a beginning of it and nothing else.
    out_.clear();
    out_.raw(bytes);
    out_.raw(body);
    emit(out_.bytes());
    const auto details = static_cast<std::uint8_t>(BlockKind::kDetails);
    const bool is_table =
        header.kind >= static_cast<std::uint8_t>(BlockKind::kStrings) && header.kind <= details;
    if (is_table) table_bytes_ += bytes.size() + body.size();
  }

  bool take_over(const ByteSource& source, std::uint64_t first, std::uint64_t last);

  // Items one after the other, in as many blocks as they need.
  template <class Encode>
  void items(BlockKind kind, std::size_t first, std::size_t last, const Encode& encode_item) {
    std::uint32_t count = 0;
    for (std::size_t i = first; i < last; ++i) {
      encode_item(i, count == 0);
      ++count;
      if (body_.size() < kBlockTargetBytes && i + 1 < last) continue;
      block(kind, {.count = std::exchange(count, 0)});
    }
  }

  void tables_so_far();
  void finish() {
    const std::uint64_t offset = written_;
    const auto count = static_cast<std::uint32_t>(blocks_);
    body_.raw(index_.bytes());
    block(BlockKind::kIndex, {.count = count});
    emit(internal::footer(offset));
  }

  void emit(std::span<const std::byte> bytes) {
    ok_ = ok_ && sink_(bytes);
    written_ += bytes.size();
  }

  ByteWriter& body() noexcept { return body_; }
  [[nodiscard]] const HrtOptions& options() const noexcept { return options_; }
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
  [[nodiscard]] std::uint64_t index_bytes() const noexcept { return index_.size(); }
  [[nodiscard]] std::uint64_t table_bytes() const noexcept { return table_bytes_; }

  const Trace& tables;

 private:
  HrtOptions options_;
  ByteSink sink_;
  Packer packer_;
  ByteWriter body_;
  ByteWriter out_;
  ByteWriter index_;
  std::uint64_t blocks_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t table_bytes_ = 0;
  bool ok_ = true;
  // The part of the tables that is in the file; entry 0 of most never has to be.
  std::uint32_t strings_ = 1;
  std::uint32_t values_ = 1;
  std::uint32_t frames_ = 0;
  std::uint32_t stacks_ = 1;
  std::uint32_t details_ = 1;
};

void HrtWriter::Impl::tables_so_far() {
  const StackTable& stacks = tables.stacks;
  const auto values = static_cast<std::uint32_t>(tables.extras.size());
  const auto added = [](std::uint32_t& done, std::uint32_t now) {
    return std::pair{std::exchange(done, std::max(done, now)), now};
  };
  const auto write = [this](BlockKind kind, std::pair<std::uint32_t, std::uint32_t> range, auto f) {
    items(kind, range.first, range.second, [&f](std::size_t i, bool /*is_first*/) {
      f(static_cast<std::uint32_t>(i));
    });
  };
  write(BlockKind::kStrings, added(strings_, tables.strings.size()), [this](std::uint32_t i) {
    body_.text(tables.strings[i]);
  });
  write(BlockKind::kValues, added(values_, values), [this](std::uint32_t i) {
    encode(body_, tables.extras[i]);
  });
  write(BlockKind::kFrames, added(frames_, stacks.frame_count()), [&](std::uint32_t i) {
    encode(body_, stacks.frame(i));
  });
  write(BlockKind::kStacks, added(stacks_, stacks.size()), [&](std::uint32_t i) {
    internal::encode_stack(body_, stacks.frame_ids(i));
  });
  write(BlockKind::kDetails, added(details_, tables.details.size()), [this](std::uint32_t i) {
    encode(body_, tables.details[i]);
  });
}

bool HrtWriter::Impl::take_over(const ByteSource& source, std::uint64_t first, std::uint64_t last) {
  internal::BlockHeaderBytes bytes;
  std::vector<std::byte> body;
  while (first < last) {
    if (!source(first, bytes)) return false;
    const auto header = internal::read_block_header(bytes);
    if (!header) return false;
    const std::uint64_t begin = first + bytes.size();
    first = begin + header->stored_bytes;
    if (!header->is(BlockKind::kEvents) && !header->is(BlockKind::kAnnotations)) continue;
    body.resize(header->stored_bytes);
    if (!source(begin, body)) return false;
    stored_block(*header, body);
  }
  return true;
}

HrtWriter::HrtWriter(const Trace& tables, ByteSink sink, HrtOptions options)
    : impl_(std::make_unique<Impl>(tables, std::move(sink), options)) {}

HrtWriter::~HrtWriter() = default;

void HrtWriter::properties() {
  impl_->tables_so_far();
  const Trace& trace = impl_->tables;
  ByteWriter& body = impl_->body();
  body.byte(static_cast<std::uint8_t>(trace.origin));
  body.byte(static_cast<std::uint8_t>((trace.has_annotations ? 1U : 0U) |
                                      (trace.has_host ? 2U : 0U) | (trace.is_bare_list ? 4U : 0U) |
                                      (trace.settings ? 8U : 0U)));
  body.text(trace.producer);
  body.varint(trace.top_level_extras);
  if (trace.settings) encode(body, *trace.settings);
  impl_->block(BlockKind::kProperties, {.count = 1});
}

void HrtWriter::device(const DeviceKey& key, std::uint64_t dropped_events) {
  impl_->body().varint(dropped_events);
  impl_->block(BlockKind::kDevice,
               {.flags = key.is_host ? internal::kFlagHost : std::uint8_t{0},
                .device = key.device,
                .rank = key.rank,
                .count = 1});
}

void HrtWriter::events(const DeviceKey& key, std::span<const Entry> entries) {
  impl_->tables_so_far();
  while (!entries.empty()) {
    const auto part =
        entries.first(std::min<std::size_t>(entries.size(), impl_->options().events_per_block));
    entries = entries.subspan(part.size());
    internal::encode_events(impl_->body(), part, part.front().time_us);
    impl_->block(BlockKind::kEvents,
                 {.flags = key.is_host ? internal::kFlagHost : std::uint8_t{0},
                  .device = key.device,
                  .rank = key.rank,
                  .count = static_cast<std::uint32_t>(part.size()),
                  .first_time_us = part.front().time_us});
  }
}

void HrtWriter::segments(std::span<const Segment> segments) {
  impl_->tables_so_far();
  DeviceAddress last = 0;
  impl_->items(BlockKind::kSegments, 0, segments.size(), [&](std::size_t i, bool is_first) {
    if (is_first) last = 0;
    encode(impl_->body(), segments[i], last);
  });
}

void HrtWriter::annotations(std::span<const Annotation> annotations) {
  impl_->tables_so_far();
  std::int64_t last_us = 0;
  impl_->items(BlockKind::kAnnotations, 0, annotations.size(), [&](std::size_t i, bool is_first) {
    if (is_first) last_us = 0;
    encode(impl_->body(), annotations[i], last_us);
  });
}

void HrtWriter::symbols(std::span<const FrameSymbols> symbols) {
  impl_->tables_so_far();
  impl_->items(BlockKind::kSymbols, 0, symbols.size(), [&](std::size_t i, bool /*is_first*/) {
    impl_->body().varint(symbols[i].frame_id);
    impl_->body().varint(symbols[i].frames.size());
    for (const Frame& frame : symbols[i].frames) encode(impl_->body(), frame);
  });
}

void HrtWriter::finish() { impl_->finish(); }

void HrtWriter::restart() {
  impl_->restart();
  properties();
}

bool HrtWriter::take_over(const ByteSource& source, std::uint64_t first, std::uint64_t last) {
  return impl_->take_over(source, first, last);
}

bool HrtWriter::ok() const noexcept { return impl_->ok(); }

std::uint64_t HrtWriter::written_bytes() const noexcept { return impl_->written(); }

std::uint64_t HrtWriter::finished_bytes() const noexcept {
  return impl_->written() + internal::kBlockHeaderBytes + impl_->index_bytes() +
         internal::kFooterBytes;
}

std::uint64_t HrtWriter::table_bytes() const noexcept { return impl_->table_bytes(); }

std::vector<std::byte> write_hrt(const Trace& trace, HrtOptions options) {
  std::vector<std::byte> file;
  HrtWriter writer(
      trace,
      [&file](std::span<const std::byte> bytes) {
        file.insert(file.end(), bytes.begin(), bytes.end());
        return true;
      },
      options);
  writer.properties();
  std::vector<Entry> entries;
  for (const DeviceTrace& device : trace.devices) {
    const DeviceKey key{.device = device.device, .rank = device.rank, .is_host = device.is_host};
    writer.device(key, device.dropped_events);
    for (std::size_t i = 0; i < device.events.size(); ++i) {
      entries.push_back(device.events[i]);
      if (entries.size() < options.events_per_block && i + 1 < device.events.size()) continue;
      writer.events(key, entries);
      entries.clear();
    }
  }
  writer.segments(trace.segments);
  writer.annotations(trace.annotations);
  writer.finish();
  return file;
}

}  // namespace headroom::trace
