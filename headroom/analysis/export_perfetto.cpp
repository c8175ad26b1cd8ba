#include "headroom/analysis/export_perfetto.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "headroom/analysis/categories.h"
#include "headroom/analysis/index.h"
#include "headroom/analysis/internal/exported_block.h"
#include "headroom/analysis/internal/json_out.h"
#include "headroom/analysis/sites.h"
#include "headroom/base/bytes.h"
#include "headroom/trace/device_name.h"
#include "headroom/trace/used_devices.h"

namespace headroom::analysis {
namespace {

using internal::JsonOut;

// The earliest moment of all devices, which becomes 0.
std::int64_t first_time_us(const Trace& trace) {
  std::int64_t first = INT64_MAX;
  for (const DeviceTrace& device : trace.devices) {
    if (!device.events.empty()) first = std::min(first, device.events.time_us(0));
  }
  for (const Annotation& annotation : trace.annotations) {
    first = std::min(first, annotation.time_us);
  }
  return first == INT64_MAX ? 0 : first;
}

class Exporter {
 public:
  Exporter(const Trace& trace, std::ostream& out, const PerfettoOptions& options)
      : trace_(trace),
        options_(options),
        json_(out),
        sites_(trace),
        origin_(first_time_us(trace)) {}

  PerfettoSummary run() {
    json_.raw("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    const trace::UsedDevices used(trace_);
    for (const DeviceTrace* device : used.all()) {
      ++pid_;
      add_device(*device);
    }
    json_.raw(
        "\n],\"otherData\":{{\"exporter\":\"headroom\",\"blocks\":{},\"blocks_drawn\":{}}}}}\n",
        summary_.blocks,
        summary_.blocks_drawn);
    json_.flush();
    return summary_;
  }

 private:
  // Opens an event; the caller adds what is special to it and closes the brace.
  void begin(char phase, std::int64_t time_us) {
    json_.raw("{}{{\"ph\":\"{}\",\"pid\":{},\"tid\":0,\"ts\":{}",
              is_first_ ? "" : ",\n",
              phase,
              pid_,
              since_start(time_us));
    is_first_ = false;
  }

  // Clocks of other machines may be anywhere; what is not after the start is at it.
  [[nodiscard]] std::uint64_t since_start(std::int64_t time_us) const {
    if (time_us <= origin_) return 0;
    return static_cast<std::uint64_t>(time_us) - static_cast<std::uint64_t>(origin_);
  }

  void add_device(const DeviceTrace& device) {
    const TraceIndex index(trace_, device);
    begin('M', origin_);
    json_.raw(",\"name\":\"process_name\",\"args\":{{\"name\":");
    json_.string(device_name(trace_, device));
    json_.raw("}}}}");
    add_counters(index);
    add_blocks(index);
    add_failures(index);
    add_annotations(index);
  }

  void counter(const char* name, std::int64_t time_us, std::uint64_t bytes) {
    begin('C', time_us);
    json_.raw(",\"name\":\"{}\",\"args\":{{\"bytes\":{}}}}}", name, bytes);
  }

  void add_counters(const TraceIndex& index) {
    Totals shown{};
    for (TotalsCursor at(index);; at.step()) {
      const Totals& now = at.totals();
      const std::int64_t time_us = index.time_us_at(at.position());
      const bool is_first = at.position() == 0;
      if (is_first || now.allocated != shown.allocated)
        counter("allocated", time_us, now.allocated);
      if (is_first || now.reserved != shown.reserved) counter("reserved", time_us, now.reserved);
      shown = now;
      if (at.is_at_end()) return;
    }
  }

  static std::int64_t begin_us(const TraceIndex& index, const Lifetime& block) {
    return index.time_us_at(block.is_initial() ? 0 : block.alloc_event + 1);
  }
  static std::int64_t end_us(const TraceIndex& index, const Lifetime& block) {
    return index.time_us_at(block.is_final() ? index.end_position() : block.end_event + 1);
  }

  // The numbers of the blocks to draw, by beginning.
  [[nodiscard]] std::vector<std::uint32_t> chosen_blocks(const TraceIndex& index) const {
    const auto blocks = index.lifetimes();
    std::vector<std::uint32_t> ids(blocks.size());
    std::iota(ids.begin(), ids.end(), 0U);
    if (ids.size() <= options_.max_blocks) return ids;
    const auto weight = [&](std::uint32_t id) {
      const Lifetime& block = blocks[id];
      const double taken =
          static_cast<double>(end_us(index, block)) - static_cast<double>(begin_us(index, block));
      return static_cast<double>(block.requested_bytes) * (taken + 1);
    };
    const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(options_.max_blocks);
    std::ranges::nth_element(ids, middle, std::ranges::greater{}, weight);
    ids.erase(middle, ids.end());
    std::ranges::sort(ids);
    return ids;
  }

  // Where it was made, outermost first: the annotation, then the site.
  std::string name_of(const Lifetime& block) {
    const std::string_view annotation = internal::annotation_of(trace_, block.details);
    const SiteId site = sites_.site_of(block.stack);
    if (site == kNoSite) {
      return annotation.empty() ? format_bytes(block.requested_bytes) : std::string(annotation);
    }
    return annotation.empty() ? sites_.name(site)
                              : fmt::format("{} > {}", annotation, sites_.name(site));
  }

  void add_blocks(const TraceIndex& index) {
    const std::vector<std::uint32_t> ids = chosen_blocks(index);
    const Categories categories(index);
    summary_.blocks += index.lifetimes().size();
    summary_.blocks_drawn += ids.size();
    for (const std::uint32_t id : ids) {
      const Lifetime& block = index.lifetimes()[id];
      const std::string name = name_of(block);
      const auto add = [&](char phase, std::int64_t time_us) {
        begin(phase, time_us);
        json_.raw(",\"cat\":\"block\",\"id\":{},\"name\":", next_id_);
        json_.string(name);
      };
      add('b', begin_us(index, block));
      json_.raw(
          ",\"args\":{{\"bytes\":{},\"address\":\"{:#x}\",\"category\":\"{}\",\"known_by\":\"{}\"}}"
          "}}",
          block.requested_bytes,
          block.address,
          to_string(categories.category_of(id)),
          to_string(categories.certainty_of(id)));
      add('e', end_us(index, block));
      json_.raw("}}");
      ++next_id_;
    }
  }

  void add_failures(const TraceIndex& index) {
    const Events& events = index.events();
    if (index.count(Action::kOutOfMemory) == 0) return;
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events.action(i) != Action::kOutOfMemory) continue;
      begin('i', events.time_us(i));
      json_.raw(",\"s\":\"p\",\"name\":\"out of memory\",\"args\":{{\"bytes\":{}}}}}",
                events.size_bytes(i));
    }
  }

  // An end belongs to the latest start of its name; scopes of several threads overlap freely.
  void add_annotations(const TraceIndex& index) {
    std::map<StringId, std::vector<std::int64_t>> open;
    const auto draw = [&](StringId name, std::int64_t from, std::int64_t to) {
      const auto add = [&](char phase, std::int64_t time_us) {
        begin(phase, time_us);
        json_.raw(",\"cat\":\"annotation\",\"id\":{},\"name\":", next_id_);
        json_.string(trace_.strings[name]);
        json_.raw("}}");
      };
      add('b', from);
      add('e', to);
      ++next_id_;
    };
    for (const Annotation& annotation : trace_.annotations) {
      if (annotation.device != index.device().device || annotation.rank != index.device().rank ||
          index.device().is_host) {
        continue;
      }
      auto& starts = open[annotation.name];
      if (annotation.is_start) {
        starts.push_back(annotation.time_us);
      } else {
        const std::int64_t from = starts.empty() ? index.time_us_at(0) : starts.back();
        if (!starts.empty()) starts.pop_back();
        draw(annotation.name, from, annotation.time_us);
      }
    }
    for (const auto& [name, starts] : open) {
      for (const std::int64_t from : starts) {
        draw(name, from, std::max(from, index.time_us_at(index.end_position())));
      }
    }
  }

  const Trace& trace_;
  const PerfettoOptions& options_;
  JsonOut json_;
  Sites sites_;
  std::int64_t origin_;
  std::size_t pid_ = 0;
  std::uint64_t next_id_ = 1;
  bool is_first_ = true;
  PerfettoSummary summary_;
};

}  // namespace

PerfettoSummary export_perfetto(const Trace& trace,
                                std::ostream& out,
                                const PerfettoOptions& options) {
  return Exporter(trace, out, options).run();
}

}  // namespace headroom::analysis
