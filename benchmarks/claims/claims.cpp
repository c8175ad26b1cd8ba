#include "benchmarks/claims/claims.h"

#include <string_view>

#include "benchmarks/claims/claims_data.h"  // made by CMake from docs/guide/claims/pytorch.json
#include "benchmarks/claims/claims_parts.h"

namespace headroom::cli {
namespace {

memory::AllocatorConfig claim_config(const std::string& settings) {
  auto parsed = memory::parse_config(settings, {.version = memory::kPyTorch211});
  if (!parsed) throw Error(parsed.error());
  return std::move(parsed->config);
}

std::string claims_intro() {
  return fmt::format(
      "# What is said about GPU memory, measured\n"
      "\n"
      "headroom started from five texts on how PyTorch manages GPU memory. Some of what they say "
      "is\n"
      "true, some only at some sizes, some not at all. Here is each claim with what was measured: "
      "in\n"
      "headroom, and in PyTorch {} on one {}.\n"
      "\n"
      "    headroom bench claims -o docs/guide/claims.md --force\n"
      "\n"
      "makes this page. Our side is measured while it runs, on a device without memory, where a\n"
      "program makes the same requests as elsewhere; so the bytes are exact, and the same each "
      "time.\n"
      "PyTorch's side is [claims/pytorch.json](claims/pytorch.json), recorded by\n"
      "[claims/record_claims.py](claims/record_claims.py), which takes the workspaces of cuBLAS "
      "and\n"
      "cuDNN that exist before off. Sizes are bytes unless they say otherwise. Times are of that\n"
      "card; `headroom bench alloc` and `bench train` measure ours.\n",
      pytorch_claims()["torch"].get<std::string>(),
      pytorch_claims()["card"].get<std::string>());
}

std::string claim_section(std::size_t number, const Claim& claim) {
  std::string out = fmt::format("\n## {}. {}\n\n{} {}\n",
                                number,
                                claim.says,
                                claim.verdict,
                                fmt::format("(Said in text {}.)", claim.source));
  if (!claim.rows.empty()) {
    out += "\n| | headroom | PyTorch |\n|---|--:|--:|\n";
    for (const ClaimRow& row : claim.rows) {
      out += fmt::format("| {} | {} | {} |\n", row.what, row.here, row.pytorch);
    }
  }
  if (!claim.command.empty()) out += fmt::format("\n    {}\n", claim.command);
  return out;
}

}  // namespace

ClaimCard::ClaimCard(const std::string& settings, std::uint64_t capacity_bytes)
    : card_(device::MetaDevice::create({.capacity_bytes = capacity_bytes})),
      allocator_(*card_, {.config = claim_config(settings), .version = memory::kPyTorch211}) {}

std::uint64_t ClaimCard::allocated() const {
  return static_cast<std::uint64_t>(allocator_.statistics().allocated_bytes.all.current);
}
std::uint64_t ClaimCard::reserved() const {
  return static_cast<std::uint64_t>(allocator_.statistics().reserved_bytes.all.current);
}
std::uint64_t ClaimCard::peak() const {
  return static_cast<std::uint64_t>(allocator_.statistics().allocated_bytes.all.peak);
}

const nlohmann::json& pytorch_claims() {
  static const nlohmann::json kClaims = nlohmann::json::parse(kPyTorchClaims);
  return kClaims;
}

std::vector<Claim> measure_claims(const Context& context) {
  std::vector<Claim> out;
  context.stage("measuring the allocator's claims ...");
  add_allocator_claims(out, context);
  context.stage("measuring the claims about training ...");
  add_training_claims(out);
  context.stage("measuring the claims about models ...");
  add_model_claims(out);
  context.stage("");
  return out;
}

std::string claims_document(const std::vector<Claim>& claims) {
  std::string out = claims_intro();
  for (std::size_t i = 0; i < claims.size(); ++i) out += claim_section(i + 1, claims[i]);
  return out;
}

std::string claims_json(const std::vector<Claim>& claims) {
  nlohmann::ordered_json json{{"schema", 1}, {"command", "bench claims"}};
  json["claims"] = nlohmann::ordered_json::array();
  for (const Claim& claim : claims) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const ClaimRow& row : claim.rows) {
      rows.push_back({{"what", row.what}, {"headroom", row.here}, {"pytorch", row.pytorch}});
    }
    json["claims"].push_back({{"says", claim.says},
                              {"source", claim.source},
                              {"verdict", claim.verdict},
                              {"rows", std::move(rows)},
                              {"command", claim.command}});
  }
  return json.dump(2) + "\n";
}

}  // namespace headroom::cli
