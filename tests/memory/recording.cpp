#include "tests/memory/recording.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <zstd.h>

#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/memory/caching/caching_allocator.h"
#include "headroom/memory/internal/rounding.h"

namespace headroom::memory::testing {
namespace {

using device::MetaDevice;
using device::MetaState;

// --- Reading -------------------------------------------------------------------------------------

std::string unpack(const std::string& packed, const std::string& path) {
  std::string text;
  ZSTD_DCtx* context = ZSTD_createDCtx();
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  std::vector<char> buffer(ZSTD_DStreamOutSize());
  std::size_t left = 1;
  while (in.pos < in.size && ZSTD_isError(left) == 0U) {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    left = ZSTD_decompressStream(context, &out, &in);
    text.append(buffer.data(), out.pos);
  }
  ZSTD_freeDCtx(context);
  if (left != 0) throw Error(path + ": not a whole zstd file");
  return text;
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty()) throw Error("cannot read " + path);
  return path.ends_with(".zst") ? unpack(text, path) : text;
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> cells;
  for (std::size_t at = 0;;) {
    const std::size_t comma = line.find(',', at);
    cells.push_back(line.substr(at, comma - at));
    if (comma == std::string_view::npos) return cells;
    at = comma + 1;
  }
}

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) {
    throw Error("not a number: " + std::string(text));
  }
  return value;
}

std::optional<Action> action_named(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Action::kOutOfMemory); ++i) {
    if (to_string(static_cast<Action>(i)) == name) return static_cast<Action>(i);
  }
  return std::nullopt;
}

BlockState state_named(std::string_view name) {
  if (name == "inactive") return BlockState::kInactive;
  return name == "active_allocated" ? BlockState::kAllocated : BlockState::kPendingFree;
}

void read_line(Recording& recording, const std::vector<std::string_view>& cells) {
  if (cells.size() < 5) throw Error("a line with too few cells");
  if (cells[0] == "segment") {
    recording.final_segments.push_back({.address = number(cells[1]),
                                        .size_bytes = number(cells[2]),
                                        .stream = static_cast<StreamId>(number(cells[3])),
                                        .is_small = cells[4].starts_with("small"),
                                        .is_expandable = cells[4].ends_with("-expandable")});
  } else if (cells[0] == "block") {
    recording.final_segments.back().blocks.push_back({.address = number(cells[1]),
                                                      .size_bytes = number(cells[2]),
                                                      .requested_bytes = number(cells[3]),
                                                      .state = state_named(cells[4])});
  } else if (const auto action = action_named(cells[0])) {
    recording.events.push_back({.action = *action,
                                .address = number(cells[1]),
                                .size_bytes = number(cells[2]),
                                .stream = static_cast<StreamId>(number(cells[3]))});
  } else {
    throw Error("an unknown action: " + std::string(cells[0]));
  }
}

// --- The state before the first event -----------------------------------------------------------

struct LiveBlock {
  std::uint64_t requested = 0;
  std::uint64_t size = 0;
  bool is_pending = false;
};

// What existed before the first event, found by undoing the events from the end backwards.
class StartState {
 public:
  StartState(const Recording& recording, const AllocatorConfig& config) : config_(config) {
    for (const SegmentInfo& segment : recording.final_segments) {
      SegmentInfo bare = segment;
      bare.blocks.clear();
      segments.emplace(segment.address, bare);
      for (const BlockInfo& block : segment.blocks) {
        if (block.state == BlockState::kInactive) continue;
        live[block.address] = {.requested = block.requested_bytes,
                               .size = block.size_bytes,
                               .is_pending = block.state == BlockState::kPendingFree};
      }
    }
    for (auto event = recording.events.rbegin(); event != recording.events.rend(); ++event) {
      undo(*event);
    }
  }

  // The segment's live blocks with what is free between them.
  [[nodiscard]] std::vector<BlockInfo> blocks_of(const SegmentInfo& segment) const {
    std::vector<BlockInfo> blocks;
    DeviceAddress at = segment.address;
    const DeviceAddress end = at + segment.size_bytes;
    const auto add_free = [&](DeviceAddress until) {
      if (until > at) blocks.push_back({.address = at, .size_bytes = until - at});
    };
    for (auto it = live.lower_bound(at); it != live.end() && it->first < end; ++it) {
      add_free(it->first);
      blocks.push_back({.address = it->first,
                        .size_bytes = it->second.size,
                        .requested_bytes = it->second.requested,
                        .state = BlockState::kAllocated});
      at = it->first + it->second.size;
    }
    add_free(end);
    return blocks;
  }

  std::map<DeviceAddress, SegmentInfo> segments;
  std::map<DeviceAddress, LiveBlock> live;

 private:
  using Live = std::map<DeviceAddress, LiveBlock>::iterator;

  void undo(const RecordedEvent& event) {
    switch (event.action) {
      case Action::kAlloc:
        live.erase(event.address);
        break;
      case Action::kFreeCompleted: {
        const Live block =
            live.emplace(event.address,
                         LiveBlock{.requested = event.size_bytes,
                                   .size = internal::round_size(event.size_bytes, config_),
                                   .is_pending = true})
                .first;
        add_tail(block);
        if (block != live.begin()) add_tail(std::prev(block));
        break;
      }
      case Action::kFreeRequested:
        live[event.address].is_pending = false;
        break;
      case Action::kSegmentAlloc:
        segments.erase(event.address);
        break;
      case Action::kSegmentFree:
        segments[event.address] = {.address = event.address,
                                   .size_bytes = event.size_bytes,
                                   .stream = event.stream,
                                   .is_small = event.size_bytes <= kSmallSegmentBytes};
        break;
      default:
        break;
    }
  }

  // In a large pool a free block is larger than 1 MiB, so a shorter gap behind a block is its own
  // unsplit tail. It shows whenever the block behind it is live.
  void add_tail(Live block) {
    const auto behind = segments.upper_bound(block->first);
    if (behind == segments.begin()) return;  // the recording has no final state
    const auto segment = std::prev(behind);
    if (segment->second.is_small || segment->second.is_expandable) return;
    DeviceAddress end = segment->first + segment->second.size_bytes;
    if (const auto next = std::next(block); next != live.end()) end = std::min(end, next->first);
    const std::uint64_t gap = end - (block->first + block->second.size);
    if (gap <= kSmallBytes) block->second.size += gap;
  }

  const AllocatorConfig& config_;
};

// --- Playing -------------------------------------------------------------------------------------

class Collector final : public EventSink {
 public:
  void record(const Event& event) noexcept override {
    events.push_back({.action = event.action,
                      .address = event.address,
                      .size_bytes = event.size_bytes,
                      .stream = event.stream});
  }
  std::vector<RecordedEvent> events;
};

bool is_segment_event(Action action) {
  return action == Action::kSegmentAlloc || action == Action::kSegmentFree ||
         action == Action::kSegmentMap || action == Action::kSegmentUnmap;
}

bool gives_back(Action action) {
  return action == Action::kSegmentFree || action == Action::kSegmentUnmap;
}

std::string describe(const RecordedEvent& event) {
  std::ostringstream out;
  out << to_string(event.action) << " 0x" << std::hex << event.address << std::dec << " "
      << event.size_bytes << " stream " << device::to_integer(event.stream);
  return out.str();
}

class Player {
 public:
  Player(const Recording& recording, const PlayOptions& options)
      : recording_(recording), config_(read_config(recording.settings, options.version)) {
    device_ = MetaDevice::create(
        {.capacity_bytes = options.card_bytes, .events = device::EventCompletion::kByHand});
    allocator_ = std::make_unique<CachingAllocator>(
        *device_, CachingOptions{.config = config_, .version = options.version});
  }

  PlayResult run() {
    restore_start();
    allocator_->add_sink(sink_);
    std::size_t group = 0;  // first output that belongs to the next input
    for (std::size_t i = 0; i < recording_.events.size(); ++i) {
      const RecordedEvent& event = recording_.events[i];
      switch (event.action) {
        case Action::kAlloc:
        case Action::kOutOfMemory:
          allocate(group, i);
          group = i + 1;
          break;
        case Action::kFreeRequested:
          flush_outputs(group, i);
          group = free(i);
          i = group - 1;
          break;
        default:
          break;
      }
    }
    flush_outputs(group, recording_.events.size());
    return finish();
  }

 private:
  static AllocatorConfig read_config(const std::string& settings, PyTorchVersion version) {
    const auto parsed =
        parse_config(settings, {.dialect = ConfigDialect::kPyTorch, .version = version});
    if (!parsed) throw Error(parsed.error());
    return parsed->config;
  }

  void adopt(StreamId stream) { (void)device_->adopt_stream(device::to_integer(stream)).value(); }

  // A stream of its own for a block that another stream holds.
  StreamId private_stream() {
    const StreamId stream{next_private_stream_++};
    adopt(stream);
    return stream;
  }

  void restore_start() {
    for (const RecordedEvent& event : recording_.events) adopt(event.stream);
    StartState start(recording_, config_);
    std::vector<SegmentInfo> segments;
    MetaState state;
    for (auto& [address, segment] : start.segments) {
      if (segment.is_expandable) continue;  // their mappings are events of the recording
      adopt(segment.stream);
      segment.blocks = start.blocks_of(segment);
      state.segments.push_back({.address = address, .size_bytes = segment.size_bytes});
      segments.push_back(segment);
    }
    if (segments.empty()) return;
    (void)device_->restore(state).value();
    allocator_->restore(segments).value();
    for (const auto& [address, block] : start.live) {
      if (block.is_pending) hold_and_free(address);
    }
  }

  void hold_and_free(DeviceAddress address) {
    const StreamId stream = private_stream();
    held_[address] = stream;
    (void)allocator_->record_stream(ours(address), stream);
    allocator_->free(ours(address));
  }

  // Where we put what PyTorch put at `address`: the same place, until the first mismatch.
  DeviceAddress ours(DeviceAddress address) const {
    const auto found = ours_.find(address);
    return found == ours_.end() ? address : found->second;
  }

  // The recorded outputs [first, last) come from the malloc at `last`, or from an empty_cache
  // before it.
  void allocate(std::size_t first, std::size_t last) {
    const RecordedEvent& request = recording_.events[last];
    place(first, last);
    const bool has_release = std::any_of(events_at(first), events_at(last), [](const auto& event) {
      return gives_back(event.action);
    });
    if (!has_release) {
      complete(first, last);
    } else if (is_emptied_by_hand(request)) {
      complete(first, last);
      allocator_->process_events();
      allocator_->empty_cache();
    }
    const auto block = allocator_->try_allocate(request.size_bytes, request.stream);
    device_->forget_places();
    if (request.action == Action::kAlloc) {
      ++result_.allocs;
      if (block) ours_[request.address] = *block;
      if (!block || *block != request.address) {
        ++result_.address_mismatches;
        mismatch(request, block ? "we chose " + std::to_string(*block) : "we failed");
      }
    } else if (block) {
      ++result_.address_mismatches;
      mismatch(request, "we served it");
      allocator_->free(*block);
    }
    compare(first, last + 1);
  }

  // PyTorch gives back only when it must: when neither the cache nor the device could serve, or
  // when garbage is collected. Otherwise the program asked for it.
  bool is_emptied_by_hand(const RecordedEvent& request) {
    if (allocator_->can_serve_from_cache(request.size_bytes, request.stream)) return true;
    const std::optional<std::uint64_t> limit = allocator_->limit();
    if (limit && config_.garbage_collection_threshold > 0) return false;
    const std::uint64_t rounded = internal::round_size(request.size_bytes, config_);
    const std::uint64_t segment = internal::segment_size(rounded, config_);
    const auto reserved =
        static_cast<std::uint64_t>(allocator_->statistics().reserved_bytes.all.current);
    return (!limit || reserved + segment <= *limit) &&
           segment <= device_->memory_info().value().free_bytes;
  }

  // The driver's answers: the addresses it gave.
  void place(std::size_t first, std::size_t last) {
    bool has_map = false;
    for (std::size_t i = first; i < last; ++i) {
      const RecordedEvent& event = recording_.events[i];
      if (event.action == Action::kSegmentAlloc) device_->place_next_segment(event.address);
      if (event.action == Action::kSegmentMap && !has_map) {
        has_map = true;
        device_->place_next_reservation(event.address);
      }
    }
  }

  void complete(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const RecordedEvent& event = recording_.events[i];
      if (event.action != Action::kFreeCompleted) continue;
      const auto held = held_.find(event.address);
      if (held == held_.end()) continue;
      (void)device_->complete_events(held->second);
      held_.erase(held);
    }
  }

  // Outputs with no malloc behind them: the program emptied the cache, or frees completed.
  void flush_outputs(std::size_t first, std::size_t last) {
    if (first == last) return;
    const bool has_release = std::any_of(events_at(first), events_at(last), [](const auto& event) {
      return gives_back(event.action);
    });
    complete(first, last);
    allocator_->process_events();
    if (has_release) allocator_->empty_cache();
    compare(first, last);
  }

  std::size_t free(std::size_t at) {
    const RecordedEvent& event = recording_.events[at];
    const bool completes = at + 1 < recording_.events.size() &&
                           recording_.events[at + 1].action == Action::kFreeCompleted &&
                           recording_.events[at + 1].address == event.address;
    if (completes) {
      allocator_->free(ours(event.address));
    } else {
      hold_and_free(event.address);
    }
    const std::size_t next = completes ? at + 2 : at + 1;
    compare(at, next);
    return next;
  }

  std::vector<RecordedEvent>::const_iterator events_at(std::size_t i) const {
    return recording_.events.begin() + static_cast<std::ptrdiff_t>(i);
  }

  // Everything we did since the last comparison against the recorded [first, last). Frees that
  // complete together may do so in any order.
  void compare(std::size_t first, std::size_t last) {
    std::vector<RecordedEvent> recorded(events_at(first), events_at(last));
    std::vector<RecordedEvent> ours = std::exchange(sink_.events, {});
    sort_completions(recorded);
    sort_completions(ours);
    for (std::size_t i = 0; i < std::max(recorded.size(), ours.size()); ++i) {
      if (i >= ours.size()) {
        note_missing(recorded[i], "we did nothing");
      } else if (i >= recorded.size()) {
        note_missing(ours[i], "PyTorch did nothing");
      } else if (!is_same(recorded[i], ours[i])) {
        note_missing(recorded[i], "we did " + describe(ours[i]));
      }
    }
  }

  static bool is_same(const RecordedEvent& a, const RecordedEvent& b) {
    if (a.action != b.action || a.size_bytes != b.size_bytes || a.stream != b.stream) return false;
    return a.action == Action::kOutOfMemory || a.address == b.address;
  }

  static void sort_completions(std::vector<RecordedEvent>& events) {
    const auto is_completion = [](const RecordedEvent& e) {
      return e.action == Action::kFreeCompleted;
    };
    for (auto it = events.begin(); it != events.end();) {
      const auto run = std::find_if(it, events.end(), is_completion);
      it = std::find_if_not(run, events.end(), is_completion);
      std::sort(run, it, [](const auto& a, const auto& b) { return a.address < b.address; });
    }
  }

  void note_missing(const RecordedEvent& event, const std::string& instead) {
    if (is_segment_event(event.action)) {
      ++result_.segment_mismatches;
    } else {
      ++result_.address_mismatches;
    }
    mismatch(event, instead);
  }

  void mismatch(const RecordedEvent& event, const std::string& instead) {
    if (!result_.first_mismatch.empty()) return;
    result_.first_mismatch = "after " + std::to_string(result_.allocs) +
                             " allocs: " + describe(event) + ", but " + instead;
  }

  PlayResult finish() {
    const Statistics stats = allocator_->statistics();
    result_.peak_allocated = static_cast<std::uint64_t>(stats.allocated_bytes.all.peak);
    result_.peak_reserved = static_cast<std::uint64_t>(stats.reserved_bytes.all.peak);
    result_.broken_invariant = allocator_->check_invariants().value_or("");
    result_.end_segments = allocator_->segments();
    result_.has_same_end = is_same_end(result_.end_segments);
    allocator_->remove_sink(sink_);
    return result_;
  }

  bool is_same_end(const std::vector<SegmentInfo>& ours) const {
    std::vector<SegmentInfo> recorded = recording_.final_segments;
    std::ranges::sort(recorded, {}, &SegmentInfo::address);
    return std::ranges::equal(ours, recorded, [](const SegmentInfo& a, const SegmentInfo& b) {
      return a.address == b.address && a.size_bytes == b.size_bytes && a.stream == b.stream &&
             a.is_small == b.is_small && a.is_expandable == b.is_expandable &&
             std::ranges::equal(a.blocks, b.blocks, [](const BlockInfo& x, const BlockInfo& y) {
               return x.address == y.address && x.size_bytes == y.size_bytes && x.state == y.state;
             });
    });
  }

  const Recording& recording_;
  AllocatorConfig config_;
  std::unique_ptr<MetaDevice> device_;
  std::unique_ptr<CachingAllocator> allocator_;
  Collector sink_;
  std::unordered_map<DeviceAddress, StreamId> held_;
  std::unordered_map<DeviceAddress, DeviceAddress> ours_;
  std::uint64_t next_private_stream_ = std::uint64_t{1} << 63U;
  PlayResult result_;
};

}  // namespace

Recording read_recording(const std::string& path) {
  const std::string text = read_all(path);
  Recording recording;
  std::size_t line_number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    ++line_number;
    constexpr std::string_view kSettings = "# settings=";
    try {
      if (line.starts_with(kSettings)) {
        recording.settings = line.substr(kSettings.size());
      } else if (!line.empty()) {
        read_line(recording, split(line));
      }
    } catch (const Error& error) {
      throw Error(path + ":" + std::to_string(line_number) + ": " + error.what());
    }
  }
  return recording;
}

PlayResult play(const Recording& recording, const PlayOptions& options) {
  return Player(recording, options).run();
}

}  // namespace headroom::memory::testing
