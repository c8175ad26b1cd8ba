// A log as its writer meant it, out of what a copy of it can be: a terminal's, a browser's, a
// notebook's file, a line of JSON.
#pragma once

#include <string>
#include <string_view>

namespace headroom::diagnose::internal {

// Without colours and other escapes, without tags of HTML and the lines of boxes; what stands for a
// character (`&gt;`, `\n` and `\u001b` of JSON) is that character; every kind of blank is a blank.
[[nodiscard]] std::string plain_text(std::string_view log);

}  // namespace headroom::diagnose::internal
