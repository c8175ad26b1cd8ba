// `headroom tune --json`: docs/format/tune.schema.json says what each field means.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output/json_values.h"
#include "cli/tune/tune.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

Json candidate_json(const replay::Candidate& one) {
  return {{"conf", one.conf},
          {"peak_reserved", one.peak_reserved},
          {"fits", one.fits},
          {"peak_reserved_low", one.peak_reserved_low},
          {"peak_reserved_high", one.peak_reserved_high},
          {"driver_us", one.driver_us},
          {"retries", one.retries},
          {"served", one.served},
          {"overhead", one.overhead},
          {"peaks", one.peaks}};
}

const char* maker_id(MadeBy maker) {
  switch (maker) {
    case MadeBy::kPaged:
      return "paged";
    case MadeBy::kNative:
      return "native";
    case MadeBy::kPyTorch:
      break;
  }
  return "pytorch";
}

Json history_json(const TunedHistory& one) {
  return {{"name", one.name},
          {"allocs", one.allocs},
          {"peak_live", one.peak_live},
          {"failures", one.failures},
          {"start_reserved", one.start_reserved},
          {"allocator", maker_id(one.made_by)},
          {"recorded_reserved", one.recorded_reserved}};
}

}  // namespace

std::string tune_json(const TuneReport& report) {
  const replay::TuneResult& result = report.result;
  const replay::TuneOptions& options = report.request.options;
  Json json;
  json["schema"] = 1;
  json["command"] = "tune";
  json["files"] = report.request.paths;
  json["histories"] = Json::array();
  for (const TunedHistory& one : report.histories) json["histories"].push_back(history_json(one));
  json["pytorch"] = fmt::format("{}.{}", report.version.major, report.version.minor);
  json["is_pytorch_known"] = report.is_version_known;
  json["limit"] = value_json(options.limit_bytes);
  json["card"] = value_json(options.card_bytes);
  json["without"] = options.without;
  json["current"] = candidate_json(result.current);
  json["best"] = candidate_json(result.best);
  json["best_without_expandable"] = result.best_without_expandable
                                        ? candidate_json(*result.best_without_expandable)
                                        : Json(nullptr);
  json["is_current_best"] = result.is_current_best();
  json["saved_bytes"] = result.saved_bytes();
  json["candidates"] = Json::array();
  for (const replay::Candidate& one : result.candidates) {
    json["candidates"].push_back(candidate_json(one));
  }
  json["tried"] = result.tried;
  json["seconds"] = result.seconds;
  return json.dump(2) + "\n";
}

}  // namespace headroom::cli
