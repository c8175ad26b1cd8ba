// Where the documents are that come with the program.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace headroom::cli {

// The path of `docs/guide/glossary.md` and the like, as it can be opened from the folder that the
// user is in: beside the program as it was installed or built, and as short as `name` where that
// is the same file. Nothing where it is not there.
[[nodiscard]] std::optional<std::string> find_document(std::string_view name);

}  // namespace headroom::cli
