// The views of `bench`'s measurements, as text and as JSON.
#pragma once

#include <string>

#include "benchmarks/alloc/bench_alloc.h"
#include "benchmarks/device/bench_device.h"
#include "benchmarks/ops/bench_ops.h"
#include "benchmarks/trace/bench_trace.h"
#include "cli/command.h"

namespace headroom::cli {

[[nodiscard]] std::string draw_alloc_bench(const AllocBench& bench, const Context& context);
[[nodiscard]] std::string alloc_bench_json(const AllocBench& bench);

[[nodiscard]] std::string draw_device_bench(const DeviceBench& bench, const Context& context);
[[nodiscard]] std::string device_bench_json(const DeviceBench& bench);

[[nodiscard]] std::string draw_ops_bench(const OpsBench& bench, const Context& context);
[[nodiscard]] std::string ops_bench_json(const OpsBench& bench);

[[nodiscard]] std::string draw_trace_bench(const TraceBench& bench, const Context& context);
[[nodiscard]] std::string trace_bench_json(const TraceBench& bench);

}  // namespace headroom::cli
