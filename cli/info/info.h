// `headroom info`: draws what analysis/summary.h finds in a recording, or writes it as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headroom/analysis/summary.h"

#include "cli/command.h"

namespace headroom::cli {

// How holders are grouped; unset is by site where there are stacks.
enum class InfoBy : std::uint8_t { kSite, kStack, kModule };

struct InfoRequest {
  std::string path{};
  analysis::SummaryOptions options{};
  std::optional<InfoBy> by{};
};

[[nodiscard]] std::string draw_info(const analysis::RecordingSummary& summary,
                                    const InfoRequest& request,
                                    const Context& context);

// Follows docs/format/info.schema.json.
[[nodiscard]] std::string info_json(const analysis::RecordingSummary& summary,
                                    const InfoRequest& request);

}  // namespace headroom::cli
