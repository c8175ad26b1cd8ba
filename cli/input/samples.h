// Where the recordings are that come with the program.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::cli {

// The recording that `demo` replays, and `bench claims` too.
inline constexpr const char* kTourSample = "gpt2_varlen.pickle.zst";

// The path of `gpt2_varlen.pickle.zst` and the like: in $HEADROOM_SAMPLES where that is set, else
// beside the program as it was installed or built. Nothing where it is in none of them.
[[nodiscard]] std::optional<std::string> find_sample(std::string_view name);

// The paths of all recordings in the first of these folders that has some, sorted; for a command
// that takes the samples where no recording is named. Throws UsageError, which begins with the
// name of the command, where there are none.
[[nodiscard]] std::vector<std::string> all_samples(std::string_view command);

}  // namespace headroom::cli
