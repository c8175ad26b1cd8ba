#include "headroom/trace/pickle/pickle_reader.h"

#include <algorithm>
#include <array>
#include <new>
#include <string_view>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/trace/internal/budget.h"
#include "headroom/trace/internal/failure.h"
#include "headroom/trace/internal/trace_cost.h"
#include "headroom/trace/pickle/internal/pickle_data.h"
#include "headroom/trace/pickle/internal/pickle_machine.h"
#include "headroom/trace/pickle/internal/record.h"
#include "headroom/trace/pickle/internal/snapshot_entries.h"
#include "headroom/trace/pickle/internal/snapshot_segments.h"
#include "headroom/trace/pickle/internal/snapshot_tables.h"
#include "headroom/trace/pickle/internal/value_from_pickle.h"
#include "headroom/trace/used_devices.h"

namespace headroom::trace {
namespace {

using internal::Budget;
using internal::Field;
using internal::Kind;
using internal::Path;
using internal::PickleData;
using internal::Record;
using internal::Ref;

enum TopField : Field {
  kSegments,
  kDeviceTraces,
  kSettings,
  kAnnotations,
  kHostSegments,
  kHostTraces,
  // Our own writer adds:
  kProducer,
  kRank,
  kDroppedEvents,
};
constexpr std::array<std::string_view, 9> kTopNames{"segments",
                                                    "device_traces",
                                                    "allocator_settings",
                                                    "external_annotations",
                                                    "host_segments",
                                                    "host_traces",
                                                    "producer",
                                                    "rank",
                                                    "dropped_events"};

constexpr double kParsingShare = 0.7;  // of the time; the rest is understanding

// From the values of a pickle to a Trace.
class SnapshotReader {
 public:
  SnapshotReader(const PickleData& data, Budget& budget, Trace& trace)
      : data_(data),
        trace_(trace),
        budget_(budget),
        tables_(data, budget_, trace),
        segments_(data, budget_, tables_),
        entries_(data, budget_, tables_),
        top_(data, budget_, kTopNames) {}

  void read(Ref root) {
    const Path path;
    if (root.kind() == Kind::kList) {
      trace_.is_bare_list = true;
      read_segments(root, path, false);
      return refuse_too_many_devices();
    }
    if (root.kind() != Kind::kDict) {
      internal::fail("the pickle holds a value of type " + std::string(type_name(root)) +
                     ", and a memory snapshot is a dictionary");
    }
    read_top(top_.open(root, path));
    refuse_too_many_devices();
  }

 private:
  void read_top(const Record& top) {
    if (!top.find(kSegments) && !top.find(kDeviceTraces)) {
      internal::fail(
          "the pickle holds a dictionary without 'segments' and 'device_traces': it is "
          "not a memory snapshot");
    }
    if (const Ref list = top.list_if(kSegments)) {
      read_segments(list, top.path_of(kSegments), false);
    }
    if (const Ref list = top.list_if(kDeviceTraces)) {
      read_histories(list, top.path_of(kDeviceTraces), false);
    }
    if (const Ref settings = top.find(kSettings)) {
      trace_.settings = to_value(data_, settings, top.path_of(kSettings), budget_);
    }
    if (const Ref list = top.list_if(kAnnotations)) {
      read_annotations(list, top.path_of(kAnnotations));
    }
    read_host(top);
    trace_.top_level_extras = tables_.extras(top, read_ours(top));
  }

  void read_segments(Ref list, const Path& path, bool is_host) {
    const auto items = data_.items(list);
    for (std::size_t i = 0; i < items.size(); ++i) {
      trace_.segments.push_back(segments_.read(items[i], Path(path, i), is_host));
    }
  }

  void read_histories(Ref list, const Path& path, bool is_host) {
    const auto items = data_.items(list);
    budget_.spend_items(items.size());
    budget_.take(items.size() * internal::kDeviceCost);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Path item_path(path, i);
      if (items[i].kind() != Kind::kList) {
        fail_type(item_path, "a list", items[i], data_.offset(list));
      }
      DeviceTrace& device = trace_.devices.emplace_back(DeviceTrace{.device = static_cast<int>(i)});
      device.is_host = is_host;
      entries_.read(items[i], item_path, device.events);
    }
  }

  void read_annotations(Ref list, const Path& path) {
    trace_.has_annotations = true;
    const auto items = data_.items(list);
    for (std::size_t i = 0; i < items.size(); ++i) {
      trace_.annotations.push_back(entries_.read_annotation(items[i], Path(path, i)));
    }
  }

  // Pinned memory belongs to no device, so its history may be one list instead of one per device.
  void read_host(const Record& top) {
    const Ref segments = top.list_if(kHostSegments);
    const Ref traces = top.list_if(kHostTraces);
    trace_.has_host = segments || traces;
    if (segments) read_segments(segments, top.path_of(kHostSegments), true);
    if (!traces) return;
    const auto items = data_.items(traces);
    if (!items.empty() && items[0].kind() == Kind::kDict) {
      DeviceTrace& host = trace_.devices.emplace_back(DeviceTrace{.device = -1, .is_host = true});
      return entries_.read(traces, top.path_of(kHostTraces), host.events);
    }
    read_histories(traces, top.path_of(kHostTraces), true);
  }

  void refuse_too_many_devices() const {
    const std::size_t count = count_used_devices(trace_);
    if (count <= internal::kMostSnapshotDevices) return;
    internal::fail("the snapshot has " + format_count(count) + " devices, and a process has " +
                   format_count(internal::kMostSnapshotDevices) +
                   " at most: it is damaged, or made to do harm");
  }

  // Gives the fields with our names that somebody else must have written.
  internal::FieldSet read_ours(const Record& top) {
    const Ref producer = top.find(kProducer);
    const bool is_ours =
        producer.kind() == Kind::kString && data_.text(producer).starts_with("headroom");
    if (!is_ours)
      return internal::only(kProducer) | internal::only(kRank) | internal::only(kDroppedEvents);
    trace_.origin = Origin::kHeadroom;
    trace_.producer = data_.text(producer);
    if (top.find(kRank)) set_rank(top.number(kRank));
    if (top.find(kDroppedEvents)) read_dropped(top);
    return 0;
  }

  void set_rank(int rank) {
    for (DeviceTrace& device : trace_.devices) device.rank = rank;
    for (Segment& segment : trace_.segments) segment.rank = rank;
    for (Annotation& annotation : trace_.annotations) annotation.rank = rank;
  }

  void read_dropped(const Record& top) {
    const auto counts = data_.items(top.list(kDroppedEvents));
    for (std::size_t i = 0; i < counts.size() && i < trace_.devices.size(); ++i) {
      if (counts[i].kind() != Kind::kInt || counts[i].small() < 0) {
        fail_type(Path(top.path_of(kDroppedEvents), i),
                  "an integer from 0 on",
                  counts[i],
                  data_.offset(top.find(kDroppedEvents)));
      }
      trace_.devices[i].dropped_events = static_cast<std::uint64_t>(counts[i].small());
    }
  }

  const PickleData& data_;
  Trace& trace_;
  Budget& budget_;
  internal::SnapshotTables tables_;
  internal::SegmentReader segments_;
  internal::EntryReader entries_;
  internal::Schema top_;
};

// Pages that embed a snapshot pad it with zeros.
void note_trailing(std::span<const std::byte> rest, std::string* note) {
  if (note == nullptr) return;
  if (std::ranges::all_of(rest, [](std::byte byte) { return byte == std::byte{0}; })) return;
  *note = format_count(rest.size()) + " bytes behind the end of the pickle were ignored";
}

Trace parse(std::span<const std::byte> bytes, const PickleReadOptions& options) {
  const Progress& progress = options.progress;
  const Progress parsing = [&progress](double part) { progress(part * kParsingShare); };
  Budget budget(options.file_bytes == 0 ? bytes.size() : options.file_bytes);
  budget.add_unpacked(bytes.size());
  budget.take(bytes.size());
  PickleData data(bytes, budget);
  internal::PickleMachine machine(bytes, data, budget, progress ? parsing : Progress{});
  const Ref root = machine.run();
  if (progress) progress(kParsingShare);
  Trace trace;
  SnapshotReader(data, budget, trace).read(root);
  note_trailing(bytes.subspan(machine.end_offset()), options.note);
  if (progress) progress(1);
  return trace;
}

}  // namespace

FormatResult<Trace> parse_pickle(std::span<const std::byte> bytes,
                                 const PickleReadOptions& options) {
  try {
    return parse(bytes, options);
  } catch (const internal::Failure& failure) {
    return Unexpected(failure.error);
  } catch (const std::bad_alloc&) {
    return Unexpected(FormatError{.message = "there is not enough memory to read the snapshot"});
  }
}

FormatResult<Trace> parse_pickle(std::span<const std::byte> bytes, std::string* note) {
  return parse_pickle(bytes, PickleReadOptions{.note = note});
}

}  // namespace headroom::trace
