// Writes .hrt, our own format (docs/format/hrt.md), whole or as the events come.
//
//   HrtWriter writer(tables, sink);        // `tables`: strings, stacks, details that entries name
//   writer.properties();
//   writer.events({.device = 0}, entries); // first what is new in the tables, then the entries
//   writer.finish();                       // the index; without it the file opens all the same
//
// Each call leaves the file in a state that opens: what is lost when the process dies is what was
// not handed over yet, and at most the block on its way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "headroom/trace/trace.h"

namespace headroom::trace {

// Takes the next bytes of the file; false when it could not, and then it is not called again.
using ByteSink = std::function<bool(std::span<const std::byte>)>;
// Reads the bytes of a file from `offset` on, as many as `out` has; false when it could not.
using ByteSource = std::function<bool(std::uint64_t offset, std::span<std::byte> out)>;

struct HrtOptions {
  int level = 3;  // of zstd
  std::uint32_t events_per_block = 65'536;
};

struct DeviceKey {
  int device = 0;
  int rank = 0;
  bool is_host = false;

  friend bool operator==(const DeviceKey&, const DeviceKey&) = default;
};

// The frames that replace one whose symbols are known: itself, with the functions inlined into it
// before it.
struct FrameSymbols {
  std::uint32_t frame_id = 0;
  std::vector<Frame> frames{};
};

class HrtWriter {
 public:
  // Of `tables` the tables and the properties are used, not the events. It may grow between calls.
  HrtWriter(const Trace& tables, ByteSink sink, HrtOptions options = {});
  ~HrtWriter();
  HrtWriter(const HrtWriter&) = delete;
  HrtWriter& operator=(const HrtWriter&) = delete;

  // Origin, producer, settings and flags, as they are now; the last ones written count.
  void properties();
  // Makes a device known that may have no events, and says what was dropped there so far.
  void device(const DeviceKey& key, std::uint64_t dropped_events);
  void events(const DeviceKey& key, std::span<const Entry> entries);
  void segments(std::span<const Segment> segments);
  void annotations(std::span<const Annotation> annotations);
  void symbols(std::span<const FrameSymbols> symbols);
  // Nothing may be written after it.
  void finish();

  // Goes on with a new file, to which the sink leads from now on: all tables and the properties.
  void restart();
  // Takes over the events and annotations that this writer wrote to another file before, which lie
  // in whole blocks from `first` to `last`. False when that file could not be read.
  [[nodiscard]] bool take_over(const ByteSource& source, std::uint64_t first, std::uint64_t last);

  // Whether the sink took everything.
  [[nodiscard]] bool ok() const noexcept;
  [[nodiscard]] std::uint64_t written_bytes() const noexcept;
  // As large as finish() would make the file.
  [[nodiscard]] std::uint64_t finished_bytes() const noexcept;
  // Of what was written: strings, values, frames, stacks and details.
  [[nodiscard]] std::uint64_t table_bytes() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The whole trace. Throws InvalidArgument when its values are nested hundreds deep.
[[nodiscard]] std::vector<std::byte> write_hrt(const Trace& trace, HrtOptions options = {});

}  // namespace headroom::trace
