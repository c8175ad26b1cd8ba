// docs/guide/claims.md is what `headroom bench claims` makes.
#include "benchmarks/claims/claims.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

TEST(Claims, ThePageIsWhatTheCommandMakes) {
  const std::string made = claims_document(measure_claims({}));
  std::ifstream in(HEADROOM_SOURCE_DIR "/docs/guide/claims.md");
  const std::string kept{std::istreambuf_iterator<char>(in), {}};
  std::istringstream made_lines(made);
  std::istringstream kept_lines(kept);
  std::string made_line;
  std::string kept_line;
  for (int line = 1; std::getline(made_lines, made_line); ++line) {
    std::getline(kept_lines, kept_line);
    ASSERT_EQ(made_line, kept_line) << "line " << line << "; headroom bench claims -o "
                                    << "docs/guide/claims.md --force makes it anew";
  }
  EXPECT_EQ(made, kept);
}

TEST(Claims, EachHasAVerdictAndNumbersWithoutHoles) {
  for (const Claim& claim : measure_claims({})) {
    SCOPED_TRACE(claim.says);
    EXPECT_FALSE(claim.source.empty());
    EXPECT_TRUE(claim.verdict.ends_with('.') || claim.verdict.ends_with(".)"));
    for (const ClaimRow& row : claim.rows) EXPECT_FALSE(row.here.empty() && row.pytorch.empty());
  }
}

}  // namespace
}  // namespace headroom::cli
