#include "headroom/analysis/frames.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

namespace headroom::analysis {
namespace {

using Parts = std::initializer_list<std::string_view>;

bool contains_one(std::string_view text, Parts parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}
bool starts_with_one(std::string_view text, Parts parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return text.starts_with(part); });
}
bool ends_with_one(std::string_view text, Parts parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return text.ends_with(part); });
}
bool is_one_of(std::string_view text, Parts parts) {
  return std::ranges::find(parts, text) != parts.end();
}

bool is_unknown(std::string_view text) { return text.empty() || text == "??"; }

// Code typed at a prompt or in a notebook has no file, but an author.
bool is_typed(std::string_view file) { return starts_with_one(file, {"<stdin>", "<ipython"}); }

std::string with_slashes(std::string_view file) {
  std::string out(file);
  std::ranges::replace(out, '\\', '/');
  return out;
}

std::string in_lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

// `libcudart.so`, `libc.so.6`; not a folder that is called exp.soft.
bool is_shared_object(std::string_view file) {
  return ends_with_one(file, {".so", ".dll", ".pyd"}) ||
         file.find(".so.") != std::string_view::npos;
}

// C:/Python311/Lib/threading.py: the folders of Python on Windows, where no name has its version.
bool is_windows_python(std::string_view path) {
  if (path.size() < 2 || path[1] != ':') return false;
  const std::string lower = in_lower_case(std::string(path));
  const std::size_t lib = lower.find("/lib/");
  if (lib == std::string::npos) return false;
  return contains_one(std::string_view(lower).substr(0, lib), {"/python", "conda", "/envs/"});
}

// C and C++ of PyTorch and of Python itself, wherever they were built.
bool is_known_source(std::string_view path) {
  return contains_one(path, {"/torch/csrc/", "/aten/src/", "/c10/", "/pybind11/"}) ||
         (path.ends_with(".c") && contains_one(path, {"/Objects/", "/Python/", "/Modules/"}));
}

bool is_python(std::string_view file) { return file.ends_with(".py") || file.starts_with('<'); }

// Of PyTorch's own C++ only the operators say something.
bool is_cpp_wrapper(std::string_view file, std::string_view function) {
  if (function.find("::") == std::string_view::npos || is_shared_object(function)) return true;
  constexpr std::string_view kOperator = "at::native::";
  if (function.starts_with(kOperator)) {
    return starts_with_one(function.substr(kOperator.size()),
                           {"empty", "resize", "allocate", "structured_", "make_", "(anonymous"});
  }
  return starts_with_one(function,
                         {"at::",
                          "c10::",
                          "torch::",
                          "caffe2::",
                          "pybind11::",
                          "std::",
                          "__gnu_cxx::",
                          "void ",
                          "(anonymous namespace)::",
                          "headroom::memory::",
                          "headroom::device::",
                          "headroom::trace::"}) ||
         contains_one(file, {"/torch/csrc/", "/c10/", "/pybind11/"});
}

// The last `count` parts of a path.
std::string_view last_parts(std::string_view path, std::size_t count) {
  std::size_t at = path.size();
  for (std::size_t i = 0; i < count; ++i) {
    at = at == 0 ? std::string_view::npos : path.find_last_of("/\\", at - 1);
    if (at == std::string_view::npos) return path;
  }
  return path.substr(at + 1);
}

std::vector<StringId> files_of(const Trace& trace) {
  std::vector<bool> is_seen(trace.strings.size());
  std::vector<StringId> files;
  for (FrameId id = 0; id < trace.stacks.frame_count(); ++id) {
    const StringId file = trace.stacks.frame(id).file;
    if (!is_seen[file]) files.push_back(file);
    is_seen[file] = true;
  }
  return files;
}

// How many of its last parts tell each file from the others.
constexpr std::uint8_t kMostParts = 6;
void distinguish(const trace::StringTable& strings,
                 std::vector<StringId> files,
                 std::vector<std::uint8_t>& parts) {
  for (std::uint8_t count = 1; count < kMostParts && !files.empty(); ++count) {
    std::unordered_map<std::string_view, std::size_t> users;
    for (const StringId file : files) ++users[last_parts(strings[file], count)];
    std::erase_if(files,
                  [&](StringId file) { return users[last_parts(strings[file], count)] == 1; });
    for (const StringId file : files) parts[file] = static_cast<std::uint8_t>(count + 1);
  }
}

// For each frame the first that has the same name, file and line.
std::vector<FrameId> shown_frames(const trace::StackTable& stacks) {
  bool has_more = false;
  for (FrameId id = 0; id < stacks.frame_count(); ++id) {
    has_more = has_more || stacks.frame(id).extras != 0;
  }
  if (!has_more) return {};
  std::map<std::tuple<StringId, StringId, std::int64_t>, FrameId> firsts;
  std::vector<FrameId> shown;
  for (FrameId id = 0; id < stacks.frame_count(); ++id) {
    const Frame& frame = stacks.frame(id);
    shown.push_back(firsts.try_emplace({frame.name, frame.file, frame.line}, id).first->second);
  }
  return shown;
}

}  // namespace

bool is_user_frame(std::string_view file, std::string_view function) {
  if (starts_with_one(function,
                      {"std::",
                       "__gnu_cxx::",
                       "operator new",
                       "headroom::memory::",
                       "headroom::device::",
                       "headroom::trace::",
                       "at::",
                       "c10::",
                       "torch::"})) {
    return false;
  }
  if (is_typed(file)) return true;
  if (is_unknown(file) || file.starts_with('<')) return false;
  const std::string path = with_slashes(file);
  if (starts_with_one(path, {"/usr/include/", "/usr/lib", "/lib/", "/lib64/"})) return false;
  if (contains_one(path, {"site-packages/", "dist-packages/", "/lib/python3", "/torchinductor_"}) ||
      is_shared_object(path) || is_windows_python(path)) {
    return false;
  }
  return is_python(path) || !is_known_source(path);
}

bool is_wrapper_frame(std::string_view file, std::string_view function) {
  if (is_user_frame(file, function)) return false;
  const std::string path = with_slashes(file);
  if (!is_python(path)) return is_cpp_wrapper(path, function);
  const std::string_view last = function.substr(function.find_last_of('.') + 1);
  if (is_one_of(last,
                {"_call_impl",
                 "_wrapped_call_impl",
                 "__call__",
                 "decorate_context",
                 "decorate_autocast",
                 "decorate_fwd",
                 "decorate_bwd",
                 "wrapper",
                 "wrapped",
                 "wrapped_func",
                 "wrapped_fn",
                 "_wrapped",
                 "inner",
                 "_inner",
                 "new_forward",
                 "_fn",
                 "<lambda>",
                 "<listcomp>",
                 "<genexpr>",
                 "_use_grad",
                 "profile_hook_step",
                 "_run_ddp_forward",
                 "__torch_function__",
                 "__torch_dispatch__",
                 "handle_torch_function"})) {
    return true;
  }
  return path.starts_with('<') || contains_one(path,
                                               {"torch/nn/modules/module.py",
                                                "torch/nn/modules/container.py",
                                                "torch/nn/functional.py",
                                                "torch/nn/parallel/",
                                                "torch/functional.py",
                                                "torch/_ops.py",
                                                "torch/_library/",
                                                "torch/_compile.py",
                                                "torch/_dynamo/",
                                                "torch/_functorch/",
                                                "torch/_jit_internal.py",
                                                "torch/overrides.py",
                                                "torch/amp/",
                                                "torch/autograd/",
                                                "torch/_tensor.py",
                                                "torch/utils/_contextlib.py",
                                                "torch/utils/_pytree.py",
                                                "torch/utils/checkpoint.py",
                                                "accelerate/hooks.py",
                                                "accelerate/utils/operations.py",
                                                "/functools.py",
                                                "/contextlib.py",
                                                "/threading.py",
                                                "/runpy.py"});
}

std::string short_function(std::string_view function) {
  if (function.find("::") == std::string_view::npos && !function.ends_with(')')) {
    return std::string(function);  // <module> and <lambda> among them
  }
  constexpr std::string_view kUnnamed = "(anonymous namespace)";
  std::string out;
  int depth = 0;
  for (std::size_t i = 0; i < function.size(); ++i) {
    const char c = function[i];
    if (depth == 0 && function.substr(i).starts_with(kUnnamed)) {
      out += kUnnamed;
      i += kUnnamed.size() - 1;
    } else if ((c == '<' || c == '(') && !out.ends_with("operator")) {
      ++depth;
    } else if ((c == '>' || c == ')') && depth > 0) {
      --depth;
    } else if (depth == 0) {
      out += c;
    }
  }
  for (const std::string_view end : {" const", " noexcept"}) {
    if (out.ends_with(end)) out.resize(out.size() - end.size());
  }
  return out.empty() ? std::string(function) : out;
}

namespace {

FrameKind kind_of(std::string_view file, std::string_view function) {
  if (is_unknown(file) && is_unknown(function)) return FrameKind::kUnnamed;
  if (is_user_frame(file, function)) return FrameKind::kUser;
  return is_wrapper_frame(file, function) ? FrameKind::kWrapper : FrameKind::kLibrary;
}

std::vector<FrameKind> kinds_of(const Trace& trace) {
  std::vector<FrameKind> kinds;
  kinds.reserve(trace.stacks.frame_count());
  for (FrameId id = 0; id < trace.stacks.frame_count(); ++id) {
    const Frame& frame = trace.stacks.frame(id);
    kinds.push_back(kind_of(trace.strings[frame.file], trace.strings[frame.name]));
  }
  return kinds;
}

}  // namespace

Frames::Frames(const Trace& trace)
    : trace_(trace),
      kinds_(kinds_of(trace)),
      parts_(trace.strings.size(), 1),
      shown_(shown_frames(trace.stacks)) {
  std::vector<StringId> all = files_of(trace);
  distinguish(trace.strings, all, parts_);
  std::erase_if(all, [&](StringId file) { return !is_user_frame(trace.strings[file], ""); });
  for (const StringId file : all) parts_[file] = 1;
  distinguish(trace.strings, std::move(all), parts_);
}

FrameId Frames::shown(FrameId frame) const { return shown_.empty() ? frame : shown_[frame]; }

std::string_view Frames::file(FrameId frame) const {
  const StringId id = trace_.stacks.frame(frame).file;
  const std::string_view path = trace_.strings[id];
  return last_parts(path, parts_[id]);
}

std::string Frames::place(FrameId frame) const {
  const Frame& at = trace_.stacks.frame(frame);
  const std::string_view path = file(frame);
  if (is_unknown(path)) return short_function(trace_.strings[at.name]);
  return at.line > 0 ? fmt::format("{}:{}", path, at.line) : std::string(path);
}

std::string Frames::name(FrameId frame) const {
  const std::string_view function = trace_.strings[trace_.stacks.frame(frame).name];
  std::string where = place(frame);
  if (is_unknown(file(frame)) || is_unknown(function)) return where;
  return fmt::format("{} {}", where, short_function(function));
}

std::string Frames::module(FrameId frame) const {
  std::string function = short_function(trace_.strings[trace_.stacks.frame(frame).name]);
  const std::string_view path = file(frame);
  if (is_unknown(path)) return function;
  const std::size_t dot = function.find_last_of('.');
  if (is_python(path) && dot != std::string::npos) {
    return fmt::format("{} {}", std::string_view(function).substr(0, dot), path);
  }
  return is_unknown(function) ? std::string(path) : fmt::format("{} {}", path, function);
}

}  // namespace headroom::analysis
