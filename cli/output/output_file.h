// The file a command was told to write. It appears whole or not at all, and what had the name
// before stays until then. A device or a pipe (/dev/stdout) is written to as it is.
#pragma once

#include <string>
#include <string_view>

namespace headroom::cli {

// To be called before the work whose result it is for. Throws Error when the name is taken and not
// to be overwritten, or when its folder does not exist.
void check_output_file(const std::string& path, bool may_overwrite);

// That the name of the file says what is written to it; devices and pipes have any name. Throws
// UsageError.
void check_output_ending(const std::string& path, std::string_view ending);

// Throws Error, with the system's reason.
void write_output_file(const std::string& path, std::string_view text, bool may_overwrite);

}  // namespace headroom::cli
