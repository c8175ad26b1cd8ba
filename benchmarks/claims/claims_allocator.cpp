// Claims about the allocator: caching, splitting, driver calls.
#include <optional>

#include "headroom/memory/buffer.h"
#include "headroom/replay/infer_empty_caches.h"
#include "headroom/replay/player.h"
#include "headroom/replay/program.h"

#include "benchmarks/claims/claims_parts.h"
#include "cli/input/samples.h"
#include "cli/input/trace_input.h"

namespace headroom::cli {
namespace {

using memory::Buffer;

Claim claim_deletion() {
  ClaimCard card;
  Claim claim{.says = "Deleting a tensor does not lower what nvidia-smi shows; empty_cache does",
              .source = "003, 004",
              .verdict = "True. A freed block goes to the cache, which only a trim gives back.",
              .command = "build/examples/example_quick_check"};
  const nlohmann::json& recorded = pytorch_claims()["deletion"];
  const std::uint64_t base = bytes_of(recorded["emptied"][1]);
  const auto row = [&](const char* what, const char* key) {
    claim.rows.push_back(
        {what, format_count(card.reserved()), format_count(bytes_of(recorded[key][1]) - base)});
  };
  {
    const Buffer x(card.allocator(), 1_GiB);
    row("reserved with a tensor of 1 GiB", "with");
  }
  row("reserved once it is deleted", "deleted");
  (void)card.allocator().empty_cache();
  row("reserved after empty_cache()", "emptied");
  return claim;
}

// Whether a request of 30 MiB is cut from a cached block of `cached_bytes` under this setting.
bool is_split(const std::string& settings, std::uint64_t cached_bytes) {
  ClaimCard card(settings);
  { const Buffer large(card.allocator(), cached_bytes); }
  const std::uint64_t before = card.reserved();
  const Buffer small(card.allocator(), 30_MiB);
  return card.reserved() == before;
}

std::optional<replay::Program> claim_recording(const Context& context) {
  const auto path = find_sample(kTourSample);
  if (!path) return std::nullopt;
  const trace::TraceFile file = read_input(*path, context);
  const auto devices = replay::replayable(file.trace);
  if (devices.empty()) return std::nullopt;
  return replay::compile_with_empty_caches(file.trace, *devices.front());
}

std::string replayed_reserve(const std::optional<replay::Program>& program, const char* settings) {
  if (!program) return "";
  auto parsed = memory::parse_config(settings, {.version = program->version});
  if (!parsed) throw Error(parsed.error());
  const auto options = with_settings(*program, parsed->config);
  return format_count(replay::replay_bounds(*program, options).peak_reserved);
}

Claim claim_max_split(const Context& context) {
  const bool cuts_smaller = is_split("max_split_size_mb:64", 60_MiB);
  const bool cuts_larger = is_split("max_split_size_mb:64", 120_MiB);
  Claim claim{.says =
                  "max_split_size_mb keeps blocks smaller than it from being split, and so cures "
                  "fragmentation",
              .source = "001, 003",
              .verdict =
                  "False, both. It is blocks *larger* than it that are not split, so a large value "
                  "prevents next to nothing; and a small one can make things far worse, for a "
                  "large cached block then serves only requests of nearly its size.",
              .command =
                  "headroom replay samples/gpt2_varlen.pickle.zst --policy pytorch "
                  "--policy pytorch:max_split_size_mb:128"};
  claim.rows.push_back(
      {"30 MiB cut from a cached block of 60 MiB under `:64`", cuts_smaller ? "yes" : "no", "yes"});
  claim.rows.push_back(
      {"30 MiB cut from a cached block of 120 MiB under `:64`", cuts_larger ? "yes" : "no", "no"});
  const auto program = claim_recording(context);
  // PyTorch's numbers: tests/replay/measured.json.
  claim.rows.push_back(
      {"`gpt2_varlen`: reserved, defaults", replayed_reserve(program, ""), "21,109,932,032"});
  claim.rows.push_back({"`gpt2_varlen`: reserved, `max_split_size_mb:128`",
                        replayed_reserve(program, "max_split_size_mb:128"),
                        "64,118,325,248"});
  return claim;
}

Claim claim_driver_calls() {
  const nlohmann::json& recorded = pytorch_claims()["driver_calls"];
  Claim claim{.says = "A cudaMalloc takes 1 to 10 ms, a cached allocation microseconds",
              .source = "003",
              .verdict =
                  "The order is right, the numbers are not: a malloc and its free take "
                  "hundredths of a millisecond to 0.7 ms on an idle H200; what makes them "
                  "expensive is that they wait for the device.",
              .command = "headroom bench device --device cuda"};
  for (const auto& [key, name] : {std::pair("1048576", "1 MiB"),
                                  std::pair("67108864", "64 MiB"),
                                  std::pair("1073741824", "1 GiB")}) {
    claim.rows.push_back({fmt::format("cudaMalloc and cudaFree of {}", name),
                          "",
                          fmt::format("{:.1f} us",
                                      recorded[key]["malloc_us"].get<double>() +
                                          recorded[key]["free_us"].get<double>())});
  }
  claim.rows.push_back({"a cached `torch.empty` of 1 MiB, Python included",
                        "",
                        fmt::format("{:.1f} us", recorded["cached_us"].get<double>())});
  return claim;
}

Claim claim_shapes() {
  return {.says = "matmul of 2048 x 2048 and 1024 x 1024",
          .source = "000",
          .verdict =
              "Not a claim, but a snippet that cannot run: the inner sizes differ, and both "
              "say so.",
          .rows = {{"the error",
                    "matmul: inner sizes differ: [2048, 2048] x [1024, 1024]",
                    "mat1 and mat2 shapes cannot be multiplied (2048x2048 and 1024x1024)"}},
          .command = "build/examples/example_tensor_lifetimes"};
}

Claim claim_empty_cache_name() {
  return {.says = "torch.empty_cache() releases cached memory",
          .source = "002",
          .verdict =
              "There is no such function in PyTorch: it is torch.cuda.empty_cache(). Here it "
              "is headroom::empty_cache(). Neither frees what a tensor holds.",
          .rows = {},
          .command = "build/examples/example_freeing"};
}

}  // namespace

void add_allocator_claims(std::vector<Claim>& out, const Context& context) {
  out.push_back(claim_deletion());
  out.push_back(claim_max_split(context));
  out.push_back(claim_driver_calls());
  out.push_back(claim_shapes());
  out.push_back(claim_empty_cache_name());
}

}  // namespace headroom::cli
