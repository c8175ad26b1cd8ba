// Python's stacks, for recordings (bridge/recordings.h).
#pragma once

namespace headroom_torch {

// Lets recordings keep the Python stacks of allocations, until Python ends. The caller has the GIL.
// False, with Python's error set, where Python does not let us know of its end.
bool walk_python_stacks();

}  // namespace headroom_torch
