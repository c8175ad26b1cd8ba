// `headroom bench claims`: what texts about GPU memory say, measured. It writes
// docs/guide/claims.md: our side is measured while it runs, on devices without memory, so that the
// file has the same bytes each time; PyTorch's side was recorded on a GPU (docs/guide/claims/).
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace headroom::cli {

struct ClaimRow {
  std::string what;
  std::string here;     // empty: nothing to measure
  std::string pytorch;  // empty: not recorded
};

struct Claim {
  std::string says;     // in the words of the text, shortened
  std::string source;   // its number among the texts
  std::string verdict;  // one or two sentences, with the numbers that decide
  std::vector<ClaimRow> rows{};
  std::string command{};  // what shows it again
};

// Without the sample recording, the claim that needs it has PyTorch's numbers alone.
[[nodiscard]] std::vector<Claim> measure_claims(const Context& context);

[[nodiscard]] std::string claims_document(const std::vector<Claim>& claims);
[[nodiscard]] std::string claims_json(const std::vector<Claim>& claims);

}  // namespace headroom::cli
