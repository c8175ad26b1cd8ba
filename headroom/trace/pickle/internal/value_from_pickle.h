// The parts of a snapshot that are kept as they are: from pickle data to a Value.
#pragma once

#include "headroom/trace/internal/budget.h"
#include "headroom/trace/pickle/internal/path.h"
#include "headroom/trace/pickle/internal/pickle_data.h"
#include "headroom/trace/value.h"

namespace headroom::trace::internal {

// Fails where the value nests too deeply (or contains itself) or unfolds past the budget.
[[nodiscard]] Value to_value(const PickleData& data, Ref value, const Path& path, Budget& budget);

}  // namespace headroom::trace::internal
