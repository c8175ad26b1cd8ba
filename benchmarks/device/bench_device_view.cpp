#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/report/numbers.h"
#include "headroom/report/table.h"

#include "benchmarks/bench_views.h"
#include "cli/output/json_values.h"

namespace headroom::cli {
namespace {

std::string microseconds(double us) { return fmt::format("{:.{}f}", us, us < 100 ? 2 : 0); }

std::string size_text(const CallCost& cost) {
  if (cost.size_bytes == 0) return "";
  if (cost.handles == 0) return format_bytes(cost.size_bytes);
  return fmt::format("{} x {}", cost.handles, format_bytes(cost.size_bytes / cost.handles));
}

std::string loaded_text(const CallCost& cost) {
  if (!cost.loaded_us) return "";
  return cost.waits ? "waits" : microseconds(cost.loaded_us->median);
}

}  // namespace

std::string device_bench_json(const DeviceBench& bench) {
  nlohmann::json calls = nlohmann::json::array();
  for (const CallCost& cost : bench.calls) {
    calls.push_back(
        {{"call", cost.call},
         {"size_bytes", cost.size_bytes},
         {"handles", cost.handles},
         {"idle_us", spread_json(cost.idle_us)},
         {"loaded_us", cost.loaded_us ? spread_json(*cost.loaded_us) : nlohmann::json()},
         {"waits", cost.waits}});
  }
  const nlohmann::json out{{"schema", 1},
                           {"command", "bench"},
                           {"what", "device"},
                           {"device", bench.device},
                           {"name", bench.name},
                           {"load_ms", bench.load_ms},
                           {"notes", bench.notes},
                           {"calls", calls}};
  return out.dump(2) + "\n";
}

std::string draw_device_bench(const DeviceBench& bench, const Context& context) {
  std::string text = fmt::format(
      "{}, {}\nMicroseconds per call: the median of the rounds, and the lowest to the highest.\n",
      bench.device,
      bench.name);
  text += bench.load_ms > 0
              ? fmt::format("Busy: during {} of fills on another stream; 'waits': for them.\n",
                            report::format_duration_ns(bench.load_ms * 1e6))
              : "Calls are done when they return, so there is no busy column.\n";
  text += "\n";
  report::Table table(
      {{.title = "call"},
       {.title = "size", .align = report::Align::kRight},
       {.title = "us", .align = report::Align::kRight},
       {.title = "spread", .align = report::Align::kRight, .fit = report::Fit::kDrops},
       {.title = "busy", .align = report::Align::kRight}});
  for (const CallCost& cost : bench.calls) {
    table.add_row(
        {cost.call,
         size_text(cost),
         microseconds(cost.idle_us.median),
         fmt::format("{} to {}", microseconds(cost.idle_us.low), microseconds(cost.idle_us.high)),
         loaded_text(cost)});
  }
  text += table.render(context.out);
  for (const std::string& note : bench.notes) text += "\n" + note + "\n";
  return text + "\n" +
         context.next(fmt::format("bench alloc --device {}", bench.device),
                      "allocators on this device");
}

}  // namespace headroom::cli
