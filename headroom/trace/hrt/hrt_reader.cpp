#include "headroom/trace/hrt/hrt_reader.h"

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <zstd.h>

#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/trace/hrt/internal/byte_stream.h"
#include "headroom/trace/hrt/internal/crc32c.h"
#include "headroom/trace/hrt/internal/hrt_decoder.h"
#include "headroom/trace/hrt/internal/hrt_format.h"
#include "headroom/trace/internal/budget.h"
#include "headroom/trace/internal/failure.h"
#include "headroom/trace/internal/trace_cost.h"
#include "headroom/trace/used_devices.h"

namespace headroom::trace {

using internal::BlockHeader;
using internal::BlockKind;
using internal::ByteReader;

namespace {

using Bytes = std::span<const std::byte>;

std::string_view name_of(std::uint8_t kind) noexcept {
  switch (static_cast<BlockKind>(kind)) {
    case BlockKind::kProperties:
      return "properties";
    case BlockKind::kStrings:
      return "strings";
    case BlockKind::kValues:
      return "values";
    case BlockKind::kFrames:
      return "frames";
    case BlockKind::kStacks:
      return "stacks";
    case BlockKind::kDetails:
      return "details";
    case BlockKind::kDevice:
      return "device";
    case BlockKind::kEvents:
      return "events";
    case BlockKind::kSegments:
      return "segments";
    case BlockKind::kAnnotations:
      return "annotations";
    case BlockKind::kSymbols:
      return "symbols";
    case BlockKind::kIndex:
      return "index";
  }
  return "unknown";
}

Unexpected<FormatError> error(std::string message, std::uint64_t offset) {
  return Unexpected(FormatError{.message = std::move(message), .offset = offset});
}

FormatResult<void> check_file_header(Bytes file) {
  if (file.empty()) return error("the file is empty: nothing was recorded into it", 0);
  const std::size_t known = std::min(file.size(), internal::kHrtMagic.size());
  if (!std::equal(file.begin(),
                  file.begin() + static_cast<std::ptrdiff_t>(known),
                  std::as_bytes(std::span(internal::kHrtMagic)).begin())) {
    return error("this is not a .hrt file: it does not begin like one", 0);
  }
  if (file.size() < internal::kFileHeaderBytes) {
    return error("the file ends inside its header: it was cut off before anything was recorded",
                 file.size());
  }
  ByteReader in(file.subspan(internal::kHrtMagic.size()));
  const auto version = in.fixed(2);
  const auto flags = in.fixed(2);
  if (version != internal::kHrtVersion) {
    return error(fmt::format("the file is of .hrt version {}, and this headroom reads version {}: "
                             "read it with the headroom that wrote it, or a newer one",
                             version,
                             internal::kHrtVersion),
                 internal::kHrtMagic.size());
  }
  if (in.fixed(4) != internal::crc32c(file.first(internal::kFileHeaderBytes - 4))) {
    return error("the file's header is damaged (wrong checksum): copy it again", 0);
  }
  if (flags != 0) {
    return error(fmt::format("the file uses features that this headroom does not know (flags "
                             "{:#x}): read it with a newer one",
                             flags),
                 internal::kHrtMagic.size() + 2);
  }
  return {};
}

struct FreeDecoder {
  void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
};

// Goes from block to block, and knows how a file may end.
class BlockWalker {
 public:
  // The unpacked bytes are taken from the budget, where there is one.
  explicit BlockWalker(Bytes file, internal::Budget* budget = nullptr)
      : file_(file), budget_(budget) {}
  // From a block in the middle on, whatever its number.
  BlockWalker(Bytes file, std::size_t offset) : file_(file), end_(offset), is_anywhere_(true) {}

  enum class Step : std::uint8_t { kBlock, kEnd, kCut, kError };

  // The next header; its body is within the file.
  Step next() {
    start_ = end_;
    const Bytes rest = file_.subspan(start_);
    if (rest.empty()) return Step::kCut;
    if (is_complete_end(rest)) return Step::kEnd;
    if (rest.size() < internal::kBlockHeaderBytes) return Step::kCut;
    const auto header = internal::read_block_header(rest.first(internal::kBlockHeaderBytes));
    if (!header) {
      // A file system that lost power may leave zeros where the rest should be.
      const bool is_blank =
          std::ranges::all_of(rest, [](std::byte b) { return b == std::byte{0}; });
      return is_blank ? Step::kCut : fail("its header is damaged");
    }
    header_ = *header;
    if (header_.number != number_ && !is_anywhere_) {
      return fail(fmt::format("it says that it is block {}", header_.number));
    }
    if (header_.stored_bytes > rest.size() - internal::kBlockHeaderBytes) return Step::kCut;
    stored_ = rest.subspan(internal::kBlockHeaderBytes, header_.stored_bytes);
    end_ = start_ + internal::kBlockHeaderBytes + header_.stored_bytes;
    ++number_;
    return Step::kBlock;
  }

  // The body as it was before packing; nothing when it is damaged (error() says how).
  std::optional<Bytes> body() {
    if (internal::crc32c(stored_) != header_.body_checksum) return damaged("wrong checksum");
    if ((header_.flags & internal::kFlagPacked) == 0) {
      if (header_.raw_bytes != stored_.size()) return damaged("its two sizes differ");
      return stored_;
    }
    if (header_.raw_bytes > internal::kMostExpansion * stored_.size()) {
      return damaged(fmt::format("it claims to unpack to {}, more than {} times its size",
                                 format_bytes(header_.raw_bytes),
                                 internal::kMostExpansion));
    }
    if (context_ == nullptr) context_.reset(ZSTD_createDCtx());
    make_room();
    const std::span<std::byte> raw = std::span(raw_).first(header_.raw_bytes);
    const std::size_t size =
        ZSTD_decompressDCtx(context_.get(), raw.data(), raw.size(), stored_.data(), stored_.size());
    if (ZSTD_isError(size) != 0U || size != raw.size()) return damaged("it does not unpack");
    return raw;
  }

  [[nodiscard]] const BlockHeader& header() const noexcept { return header_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return start_; }
  // Whether nothing but the footer may follow.
  [[nodiscard]] bool is_last() const noexcept {
    return file_.size() - end_ <= internal::kFooterBytes;
  }
  [[nodiscard]] double part() const noexcept {
    return static_cast<double>(end_) / static_cast<double>(file_.size());
  }
  [[nodiscard]] FormatError error() const {
    return {.message = fmt::format("block {} ({}) is damaged: {}; copy the file again, or record "
                                   "anew",
                                   damaged_number_,
                                   damaged_kind_,
                                   reason_),
            .offset = start_};
  }
  Step fail(std::string reason) {
    damaged_number_ = number_;
    damaged_kind_ = "unknown";
    reason_ = std::move(reason);
    return Step::kError;
  }
  std::nullopt_t damaged(std::string reason) {
    damaged_number_ = header_.number;
    damaged_kind_ = name_of(header_.kind);
    reason_ = std::move(reason);
    return std::nullopt;
  }

 private:
  void make_room() {
    if (budget_ != nullptr) {
      budget_->add_unpacked(header_.raw_bytes);
      budget_->take(header_.raw_bytes > raw_.size() ? header_.raw_bytes - raw_.size() : 0);
    }
    if (header_.raw_bytes > raw_.size()) raw_ = std::vector<std::byte>();  // not both at once
    raw_.resize(std::max<std::size_t>(raw_.size(), header_.raw_bytes));
  }
  static bool is_complete_end(Bytes rest) noexcept {
    return rest.size() == internal::kFooterBytes && internal::read_footer(rest).has_value();
  }

  Bytes file_;
  internal::Budget* budget_ = nullptr;
  std::size_t start_ = 0;
  std::size_t end_ = internal::kFileHeaderBytes;
  std::uint32_t number_ = 0;
  bool is_anywhere_ = false;
  BlockHeader header_{};
  Bytes stored_;
  std::unique_ptr<ZSTD_DCtx, FreeDecoder> context_;
  std::vector<std::byte> raw_;
  std::string reason_;
  std::uint32_t damaged_number_ = 0;
  std::string_view damaged_kind_;
};

using Step = BlockWalker::Step;

class Parser {
 public:
  Parser(Bytes file, const HrtReadOptions& options)
      : budget_(options.file_bytes == 0 ? file.size() : options.file_bytes),
        walker_(file, &budget_),
        decoder_(budget_),
        options_(options) {
    budget_.add_unpacked(file.size());
    budget_.take(file.size());
  }

  FormatResult<Trace> run() {
    try {
      return walk();
    } catch (const internal::Failure& failure) {  // of the budget
      return trace::error(failure.error.message, walker_.offset());
    } catch (const std::bad_alloc&) {
      return trace::error("there is not enough memory to read the recording", walker_.offset());
    }
  }

 private:
  FormatResult<Trace> walk() {
    Step step = Step::kBlock;
    while ((step = walker_.next()) == Step::kBlock) {
      if (!take_block()) return Unexpected(walker_.error());
      if (is_stopped_) break;
      if (options_.progress) options_.progress(walker_.part());
    }
    if (step == Step::kError) return Unexpected(walker_.error());
    if (step != Step::kEnd && options_.note != nullptr) *options_.note = note();
    if (!decoder_.finish()) {
      return trace::error("its symbols would make the stacks absurdly long", 0);
    }
    if (const std::size_t count = count_used_devices(decoder_.trace());
        count > internal::kMostHrtDevices) {
      return trace::error(fmt::format("the recording has {} devices, where {} are the most: it is "
                                      "damaged, or made to do harm",
                                      format_count(count),
                                      format_count(internal::kMostHrtDevices)),
                          0);
    }
    return decoder_.take();
  }

  // False when the block is damaged and others follow.
  bool take_block() {
    const BlockHeader& header = walker_.header();
    const bool is_needed =
        !header.is(BlockKind::kIndex) && header.kind < internal::kFirstOptionalKind;
    const auto body = walker_.body();
    if (!body) {
      is_stopped_ = walker_.is_last();
      return is_stopped_;
    }
    if (!is_needed) return true;
    ByteReader in(*body);
    decoder_.decode(header, in);
    if (in.ok() && in.left() != 0) in.fail("there is more in it than it says");
    if (in.ok()) return true;
    (void)walker_.damaged(in.failure());
    return false;
  }

  [[nodiscard]] std::string note() const {
    const std::uint64_t events = decoder_.trace().event_count();
    std::string text = fmt::format(
        "the recording was not closed, as when its process was killed: it ends {}",
        events == 0 ? "before the first event" : "after " + format_count(events) + " events");
    if (!decoder_.has_segments()) text += ", without the final state";
    return text;
  }

  internal::Budget budget_;
  BlockWalker walker_;
  internal::HrtDecoder decoder_;
  const HrtReadOptions& options_;
  bool is_stopped_ = false;
};

HrtBlock describe(const BlockHeader& header, std::uint64_t offset) {
  return {.kind = name_of(header.kind),
          .offset = offset,
          .stored_bytes = header.stored_bytes,
          .raw_bytes = header.raw_bytes,
          .device = header.device,
          .rank = header.rank,
          .is_host = (header.flags & internal::kFlagHost) != 0,
          .count = header.count,
          .first_time_us = header.first_time_us};
}

// The blocks as the index lists them; nothing where there is no index, or a damaged one.
std::optional<std::vector<HrtBlock>> blocks_from_index(Bytes file) {
  if (file.size() < internal::kFileHeaderBytes + internal::kFooterBytes) return std::nullopt;
  const auto offset = internal::read_footer(file.last(internal::kFooterBytes));
  if (!offset || *offset < internal::kFileHeaderBytes || *offset > file.size()) return std::nullopt;
  BlockWalker walker(file, *offset);
  if (walker.next() != Step::kBlock || !walker.header().is(BlockKind::kIndex)) return std::nullopt;
  const auto body = walker.body();
  if (!body) return std::nullopt;
  std::vector<HrtBlock> blocks;
  constexpr std::size_t kEntryBytes = 8 + internal::kBlockHeaderBytes;
  for (Bytes rest = *body; rest.size() >= kEntryBytes; rest = rest.subspan(kEntryBytes)) {
    const std::uint64_t at = ByteReader(rest).fixed(8);
    const auto header = internal::read_block_header(rest.subspan(8, internal::kBlockHeaderBytes));
    if (!header || at >= *offset) return std::nullopt;
    blocks.push_back(describe(*header, at));
  }
  blocks.push_back(describe(walker.header(), *offset));
  return blocks;
}

}  // namespace

bool is_hrt(Bytes start) noexcept {
  return start.size() >= internal::kHrtMagic.size() &&
         std::ranges::equal(start.first(internal::kHrtMagic.size()),
                            std::as_bytes(std::span(internal::kHrtMagic)));
}

FormatResult<Trace> parse_hrt(Bytes file, const HrtReadOptions& options) {
  if (options.note != nullptr) options.note->clear();
  if (const auto checked = check_file_header(file); !checked) return Unexpected(checked.error());
  return Parser(file, options).run();
}

FormatResult<Trace> parse_hrt(Bytes file, std::string* note) {
  return parse_hrt(file, HrtReadOptions{.note = note});
}

FormatResult<std::vector<HrtBlock>> list_hrt_blocks(Bytes file) {
  if (const auto checked = check_file_header(file); !checked) return Unexpected(checked.error());
  if (auto listed = blocks_from_index(file)) return std::move(*listed);
  std::vector<HrtBlock> blocks;
  BlockWalker walker(file);
  Step step = Step::kBlock;
  while ((step = walker.next()) == Step::kBlock) {
    blocks.push_back(describe(walker.header(), walker.offset()));
  }
  if (step == Step::kError) return Unexpected(walker.error());
  return blocks;
}

}  // namespace headroom::trace
