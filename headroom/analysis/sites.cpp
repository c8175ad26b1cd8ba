#include "headroom/analysis/sites.h"

#include <algorithm>
#include <array>

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

bool is_unknown(std::string_view text) { return text.empty() || text == "??"; }

// Code typed at a prompt or in a notebook has no file, but an author.
bool is_typed(std::string_view file) { return starts_with_one(file, {"<stdin>", "<ipython"}); }

std::string_view base_name(std::string_view file) {
  return file.substr(file.find_last_of("/\\") + 1);
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
  if (starts_with_one(file, {"/usr/include/", "/usr/lib", "/lib/", "/lib64/"})) return false;
  return !contains_one(file,
                       {"site-packages/",
                        "dist-packages/",
                        "/lib/python3",
                        "/torch/csrc/",
                        "/aten/src/",
                        "/c10/",
                        ".so"});
}

SiteId Sites::of(StackId stack) {
  const auto [at, is_new] = known_.try_emplace(stack, kNoSite);
  if (is_new) at->second = find(stack);
  return at->second;
}

SiteId Sites::find(StackId stack) const {
  SiteId fallback = kNoSite;
  for (const std::uint32_t id : trace_.stacks.frame_ids(stack)) {
    const Frame& frame = trace_.stacks.frame(id);
    const std::string_view file = trace_.strings[frame.file];
    const std::string_view function = trace_.strings[frame.name];
    if (is_user_frame(file, function)) return id;
    const bool has_name = !is_unknown(function) || !is_unknown(file);
    if (fallback == kNoSite && has_name) fallback = id;
  }
  return fallback;
}

std::string Sites::name(SiteId site) const {
  if (site == kNoSite) return "(no stack)";
  const Frame& frame = trace_.stacks.frame(site);
  const std::string_view file = base_name(trace_.strings[frame.file]);
  const std::string_view function = trace_.strings[frame.name];
  if (is_unknown(file)) return std::string(function);
  const std::string place =
      frame.line > 0 ? fmt::format("{}:{}", file, frame.line) : std::string(file);
  return is_unknown(function) ? place : fmt::format("{} {}", place, function);
}

}  // namespace headroom::analysis
