// The kinds of frames in a stack: the user's, a library's, or one that only passes a call on; and
// how they are called in a line of text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/analysis/types.h"

namespace headroom::analysis {

// A frame's number in Trace::stacks.
using FrameId = std::uint32_t;

// Not of an installed package, of Python itself, of the C and C++ runtime, of PyTorch's sources or
// of the allocator. Paths of Windows are understood as well.
[[nodiscard]] bool is_user_frame(std::string_view file, std::string_view function);

// A library's frame that only passes a call on and says nothing about it: nn.Module's _call_impl,
// decorators, torch/nn/functional.py, PyTorch's dispatcher, Python's own C frames.
[[nodiscard]] bool is_wrapper_frame(std::string_view file, std::string_view function);

// A C++ name without template arguments and parameters: `at::native::add<float>(int)` is
// `at::native::add`. Python's names stay as they are.
[[nodiscard]] std::string short_function(std::string_view function);

enum class FrameKind : std::uint8_t {
  kUser,
  kLibrary,  // that says something
  kWrapper,
  kUnnamed,  // neither a file nor a function
};

// The frames of one recording: what each is, with names that tell them apart: files by their last
// part, and by as many folders before it as it takes where two share that. A file of the user's is
// only told apart from others of the user's.
class Frames {
 public:
  // Is referred to and must outlive this.
  explicit Frames(const Trace& trace);

  [[nodiscard]] FrameKind kind(FrameId frame) const { return kinds_[frame]; }

  // `train.py:18 forward`, `gpt2/modeling.py:18`, `forward`.
  [[nodiscard]] std::string name(FrameId frame) const;
  // The same without the function where there is a file: `train.py:18`.
  [[nodiscard]] std::string place(FrameId frame) const;
  // The code without the line: `modeling_gpt2.py forward`, `GPT2MLP modeling_gpt2.py` where the
  // function's name has its class.
  [[nodiscard]] std::string module(FrameId frame) const;
  // Frames that differ by nothing that is shown have one number, that of the first.
  [[nodiscard]] FrameId shown(FrameId frame) const;

 private:
  [[nodiscard]] std::string_view file(FrameId frame) const;

  const Trace& trace_;
  std::vector<FrameKind> kinds_;
  std::vector<std::uint8_t> parts_;  // by StringId of a file: how many of its last parts to show
  std::vector<FrameId> shown_;       // empty where every frame is its own
};

}  // namespace headroom::analysis
