// The page of `headroom plan -o`, with @MODEL@ and @DATA@ to be filled in.
#pragma once

#include <string_view>

namespace headroom::cli {

[[nodiscard]] std::string_view plan_page_html();

}  // namespace headroom::cli
