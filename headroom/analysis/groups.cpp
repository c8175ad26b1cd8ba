#include "headroom/analysis/groups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "headroom/analysis/sites.h"
#include "headroom/base/bytes.h"

namespace headroom::analysis {
namespace {

class Grouping {
 public:
  Grouping(const TraceIndex& index, GroupBy by, const Categories* categories)
      : index_(index), trace_(index.trace()), by_(by), categories_(categories) {
    if (by == GroupBy::kSite || by == GroupBy::kStack || by == GroupBy::kModule) {
      sites_.emplace(trace_);
    }
  }

  void add(std::uint32_t id) {
    const Lifetime& block = index_.lifetimes()[id];
    const std::uint64_t key = key_of(id);
    const auto [at, is_new] = numbers_.try_emplace(key, groups_.size());
    if (is_new) groups_.push_back({.label = label_of(key)});
    Group& group = groups_[at->second];
    group.bytes += block.block_bytes;
    ++group.blocks;
    if (!is_new && block.block_bytes <= group.largest_bytes) return;
    group.largest_bytes = block.block_bytes;
    group.stack = block.stack;
  }

  std::vector<Group> take() {
    std::ranges::sort(groups_, [](const Group& a, const Group& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.label < b.label;
    });
    return std::move(groups_);
  }

 private:
  std::uint64_t key_of(std::uint32_t id) {
    const Lifetime& block = index_.lifetimes()[id];
    switch (by_) {
      case GroupBy::kSite:
        return sites_->site_of(block.stack);
      case GroupBy::kStack:
        return block.stack;
      case GroupBy::kCategory:
        return static_cast<std::uint64_t>(categories_->category_of(id));
      case GroupBy::kAnnotation:
        return trace_.details[block.details].user_metadata.value_or(0);
      case GroupBy::kModule:
        return module_of(block.stack);
      case GroupBy::kSize:
        return block.requested_bytes;
    }
    return 0;
  }

  // Modules have no number of their own: equal names are one.
  std::uint64_t module_of(StackId stack) {
    const auto [at, is_new] = modules_.try_emplace(stack, 0);
    if (!is_new) return at->second;
    const std::string name = sites_->module(stack);
    const auto [key, is_first] = module_keys_.try_emplace(name, module_names_.size());
    if (is_first) module_names_.push_back(name);
    return at->second = key->second;
  }

  std::string label_of(std::uint64_t key) {
    switch (by_) {
      case GroupBy::kSite:
        return sites_->name(static_cast<SiteId>(key));
      case GroupBy::kStack:
        return sites_->name(sites_->site_of(static_cast<StackId>(key)));
      case GroupBy::kCategory:
        return std::string(to_string(static_cast<memory::Category>(key)));
      case GroupBy::kAnnotation:
        return key == 0 ? "(none)" : std::string(trace_.strings[static_cast<StringId>(key)]);
      case GroupBy::kModule:
        return module_names_[key];
      case GroupBy::kSize:
        return format_bytes(key);
    }
    return {};
  }

  const TraceIndex& index_;
  const Trace& trace_;
  GroupBy by_;
  const Categories* categories_;  // where they are asked for
  std::optional<Sites> sites_;    // where they are asked for
  std::map<std::string, std::uint64_t> module_keys_;
  std::unordered_map<StackId, std::uint64_t> modules_;
  std::vector<std::string> module_names_;
  std::unordered_map<std::uint64_t, std::size_t> numbers_;
  std::vector<Group> groups_;
};

}  // namespace

std::vector<Group> group_blocks(const TraceIndex& index,
                                std::span<const std::uint32_t> lifetimes,
                                GroupBy by) {
  if (by == GroupBy::kCategory) return group_blocks(index, lifetimes, Categories(index));
  Grouping grouping(index, by, nullptr);
  for (const std::uint32_t id : lifetimes) grouping.add(id);
  return grouping.take();
}

std::vector<Group> group_blocks(const TraceIndex& index,
                                std::span<const std::uint32_t> lifetimes,
                                const Categories& categories) {
  Grouping grouping(index, GroupBy::kCategory, &categories);
  for (const std::uint32_t id : lifetimes) grouping.add(id);
  return grouping.take();
}

}  // namespace headroom::analysis
