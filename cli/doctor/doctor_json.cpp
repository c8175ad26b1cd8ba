// `headroom doctor --json`.
#include <nlohmann/json.hpp>

#include "headroom/report/doctor_text.h"

#include "cli/doctor/doctor.h"
#include "cli/doctor/message_text.h"
#include "cli/output/account_json.h"
#include "cli/output/site_tree_json.h"

namespace headroom::cli {
namespace {

using diagnose::Diagnosis;
using diagnose::Finding;
using diagnose::OomMessage;
using nlohmann::ordered_json;

constexpr std::size_t kSitesInJson = 8;

ordered_json base(diagnose::Health health) {
  ordered_json json;
  json["schema"] = 1;
  json["command"] = "doctor";
  json["verdict"] = to_string(health);
  return json;
}

ordered_json size_json(const std::optional<std::uint64_t>& size) {
  return size ? ordered_json(*size) : ordered_json(nullptr);
}

// The run that proves it: what it took, under which limit.
ordered_json proof_of(const Finding& finding) {
  if (!finding.proof) return nullptr;
  return {{"policy", to_string(finding.proof->choice)},
          {"peak_reserved", finding.proof->peak_reserved},
          {"limit_bytes", size_json(finding.proof->limit_bytes)},
          {"driver_us", finding.proof->driver_us}};
}

ordered_json finding_json(const Diagnosis& diagnosis, const Finding& finding) {
  return {{"kind", to_string(finding.kind)},
          {"bytes", finding.bytes},
          {"site", finding.site},
          {"remedy", report::remedy_text(diagnosis, finding)},
          {"proved", finding.is_proved()},
          {"proof", proof_of(finding)},
          {"text", report::reason_text(diagnosis, finding)}};
}

ordered_json findings_json(const Diagnosis& diagnosis) {
  ordered_json out = ordered_json::array();
  for (const Finding& finding : diagnosis.findings) {
    out.push_back(finding_json(diagnosis, finding));
  }
  return out;
}

ordered_json limit_json(const std::optional<diagnose::LimitRange>& limit) {
  if (!limit) return nullptr;
  return {{"low_bytes", limit->low_bytes},
          {"high_bytes", size_json(limit->high_bytes)},
          {"source", to_string(limit->source)}};
}

ordered_json what_if_json(const std::optional<diagnose::WhatIf>& answer) {
  if (!answer) return nullptr;
  return {{"card_bytes", size_json(answer->bounds.card_bytes)},
          {"limit_bytes", size_json(answer->bounds.limit_bytes)},
          {"fits", answer->fits},
          {"peak_reserved", answer->peak_reserved}};
}

std::string_view moment_name(diagnose::Moment moment) {
  switch (moment) {
    case diagnose::Moment::kPeak:
      return "peak";
    case diagnose::Moment::kFailure:
      return "failure";
    case diagnose::Moment::kForeseenFailure:
      return "foreseen_failure";
  }
  return "";
}

std::string_view source_name(analysis::IterationSource source) {
  switch (source) {
    case analysis::IterationSource::kNone:
      return "none";
    case analysis::IterationSource::kAnnotations:
      return "annotations";
    case analysis::IterationSource::kTraffic:
      return "traffic";
  }
  return "";
}

ordered_json growth_json(const std::optional<analysis::Growth>& growth) {
  if (!growth) return nullptr;
  ordered_json sites = ordered_json::array();
  for (const analysis::GrowingSite& site : growth->sites) {
    sites.push_back({{"site", site.site},
                     {"bytes_per_iteration", site.bytes_per_iteration},
                     {"blocks", site.blocks}});
  }
  ordered_json json{{"bytes_per_iteration", growth->bytes_per_iteration},
                    {"is_same_each_time", growth->is_same_each_time},
                    {"iterations", growth->iterations},
                    {"growing_iterations", growth->growing},
                    {"total_bytes", growth->total_bytes},
                    {"iterations_from", source_name(growth->source)},
                    {"sites", std::move(sites)}};
  json["sum_site"] = nullptr;
  if (growth->sum_site) json["sum_site"] = *growth->sum_site;
  return json;
}

ordered_json setting_json(const diagnose::ProvedSetting& setting) {
  return {{"conf", setting.conf},
          {"peak_reserved", setting.peak_reserved},
          {"fits", setting.fits},
          {"limit_bytes", size_json(setting.limit_bytes)},
          {"driver_us", setting.driver_us}};
}

ordered_json proof_json(const std::optional<diagnose::Proof>& proof) {
  if (!proof) return nullptr;
  ordered_json json{{"current", setting_json(proof->current)}, {"best", setting_json(proof->best)}};
  json["expandable"] = nullptr;
  if (proof->expandable) json["expandable"] = setting_json(*proof->expandable);
  json["best_without_expandable"] = nullptr;
  if (proof->best_without_expandable) {
    json["best_without_expandable"] = setting_json(*proof->best_without_expandable);
  }
  json["paged"] = nullptr;
  if (proof->paged) {
    json["paged"] = setting_json(*proof->paged);
    json["paged"].erase("conf");
  }
  return json;
}

ordered_json device_json(const DeviceDiagnosis& device) {
  const Diagnosis& diagnosis = device.diagnosis;
  return {{"trace", device.recording},
          {"device", device.device},
          {"verdict", to_string(diagnosis.health)},
          {"is_over_bounds", diagnosis.is_over_bounds},
          {"summary", report::summary_text(diagnosis)},
          {"verdict_depends_on_limit", diagnosis.explanation.depends_on_limit},
          {"limit", limit_json(diagnosis.limit)},
          {"what_if", what_if_json(diagnosis.what_if)},
          {"events", device.events},
          {"allocs", device.allocs},
          {"has_stacks", device.has_stacks},
          {"iterations", diagnosis.iterations},
          {"failures", diagnosis.failures.count},
          {"went_on", diagnosis.failures.went_on},
          {"peak_live", diagnosis.peak_live},
          {"peak_allocated", diagnosis.peak_allocated},
          {"peak_reserved", diagnosis.peak_reserved},
          {"moment", moment_name(diagnosis.moment)},
          {"after_events", diagnosis.position},
          {"findings", findings_json(diagnosis)},
          {"account", account_json(diagnosis.account)},
          {"site_tree", site_tree_json(diagnosis.sites, kSitesInJson)},
          {"growth", growth_json(diagnosis.growth)},
          {"settings", proof_json(diagnosis.proof)}};
}

std::string_view own_name(diagnose::OwnProcess own) {
  switch (own) {
    case diagnose::OwnProcess::kNotListed:
      return "not_listed";
    case diagnose::OwnProcess::kNamed:
      return "named";
    case diagnose::OwnProcess::kByArithmetic:
      return "by_arithmetic";
    case diagnose::OwnProcess::kMaybe:
      return "maybe";
  }
  return "";
}

std::string verdict_name(const OomMessage& message) {
  return message.verdict ? std::string(to_string(diagnose::health_of(*message.verdict)))
                         : "unknown";
}

ordered_json message_json(const OomMessage& message) {
  const memory::PyTorchMessage& numbers = message.numbers;
  ordered_json remedies = ordered_json::array();
  for (const diagnose::MessageRemedy& remedy : message.remedies) {
    remedies.push_back(to_string(remedy.kind));
  }
  const std::string version = version_text(message);
  ordered_json json{{"asked_bytes", numbers.asked_bytes},
                    {"device", numbers.device},
                    {"total_bytes", size_json(numbers.total_bytes)},
                    {"free_bytes", size_json(numbers.free_bytes)},
                    {"this_process_bytes", size_json(numbers.this_process_bytes)},
                    {"limit_bytes", size_json(numbers.limit_bytes)},
                    {"allocated_bytes", size_json(numbers.allocated_bytes)},
                    {"private_pool_bytes", size_json(numbers.private_pool_bytes)},
                    {"unallocated_bytes", size_json(numbers.unallocated_bytes)},
                    {"is_rejection", numbers.is_rejection},
                    {"messages", message.count},
                    {"source", to_string(message.writer)},
                    {"version", version.empty() ? ordered_json(nullptr) : ordered_json(version)},
                    {"verdict", verdict_name(message)},
                    {"own_process", own_name(message.own)},
                    {"own_process_ids", message.own_candidates},
                    {"remedies", std::move(remedies)},
                    {"written_by", message.speakers}};
  return json;
}

}  // namespace

std::string doctor_json(const std::vector<DeviceDiagnosis>& devices) {
  const Diagnosis& diagnosis = worst(devices).diagnosis;
  ordered_json json = base(diagnosis.health);
  json["findings"] = findings_json(diagnosis);
  json["account"] = account_json(diagnosis.account);
  json["devices"] = ordered_json::array();
  for (const DeviceDiagnosis& device : devices) json["devices"].push_back(device_json(device));
  json["message"] = nullptr;
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

namespace {

// The last one that tells a verdict, else the last.
const OomMessage& telling_message(const diagnose::OomLog& log) {
  for (auto message = log.messages.rbegin(); message != log.messages.rend(); ++message) {
    if (message->verdict) return *message;
  }
  return log.messages.back();
}

}  // namespace

std::string messages_json(const diagnose::OomLog& log) {
  const OomMessage& last = telling_message(log);
  const memory::Explanation explanation = message_explanation(last);
  ordered_json json = base(diagnose::Health::kShortage);
  json["verdict"] = verdict_name(last);
  const std::string kind = last.verdict ? verdict_name(last) : "out_of_memory";
  json["findings"] = ordered_json::array();
  for (const memory::Remedy& remedy : explanation.remedies) {
    json["findings"].push_back({{"kind", kind},
                                {"bytes", remedy.gain_bytes},
                                {"site", ""},
                                {"remedy", remedy.action},
                                {"proved", false},
                                {"proof", nullptr},
                                {"text", explanation.summary}});
  }
  json["account"] = account_json(account_of(last));
  json["devices"] = ordered_json::array();
  json["message"] = message_json(last);
  json["message"]["messages"] = log.count;
  json["messages"] = ordered_json::array();
  for (const OomMessage& message : log.messages) json["messages"].push_back(message_json(message));
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace headroom::cli
