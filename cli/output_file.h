// The file a command was told to write.
#pragma once

#include <string>
#include <string_view>

namespace headroom::cli {

// To be called before the work whose result it is for. Throws Error when the file exists and is not
// to be overwritten, or when its folder does not exist.
void check_output_file(const std::string& path, bool may_overwrite);

// Throws Error, with the system's reason.
void write_output_file(const std::string& path, std::string_view text);

}  // namespace headroom::cli
