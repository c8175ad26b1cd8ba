// Golden files: whole outputs kept under tests/golden, compared line by line.
//
// HEADROOM_UPDATE_GOLDEN=1 ctest --test-dir build -R cli   writes them anew; read the diff.
#pragma once

#include <string>
#include <string_view>

namespace headroom::testing {

// Fails the test, with the first line that differs, when tests/golden/`name` is not `text`.
void expect_golden(const std::string& name, std::string_view text);

}  // namespace headroom::testing
