// The verdict on an account, shortage or fragmentation, and the advice. Nothing is said that does
// not follow from the numbers; a gain is an upper bound ("up to").
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"
#include "headroom/memory/account.h"

namespace headroom::memory {
namespace {

struct Situation {
  std::uint64_t asked = 0;         // of the device
  std::uint64_t limit_left = 0;    // what the limit still allows
  std::uint64_t takeable = 0;      // what the device and the limit still give
  std::uint64_t movable = 0;       // cached pages that serve the request wherever they lie
  std::uint64_t missing_here = 0;  // of the request, beyond that
  std::uint64_t unfragmented = 0;  // what would be usable if cached memory had no holes

  [[nodiscard]] bool is_short() const noexcept { return asked > unfragmented; }
};

// Under that limit; for a limit that is known as a range, at its low end.
Situation situation_of(const Account& account, std::optional<std::uint64_t> limit_bytes) {
  Situation out;
  out.asked = std::max(account.asked_bytes, account.segment_asked_bytes);
  out.limit_left = limit_bytes ? saturating_subtract(*limit_bytes, account.reserved()) : UINT64_MAX;
  out.takeable = std::min(account.free_bytes, out.limit_left);
  out.movable = account.page_bytes != 0 ? account.cached_soft_bytes : 0;
  out.missing_here = saturating_subtract(out.asked, saturating_add(out.takeable, out.movable));
  out.unfragmented = saturating_add(account.cached(), out.takeable);
  return out;
}

// --- The summary ---------------------------------------------------------------------------------

std::string fits_summary(const Account& account) {
  return format_bytes(account.live()) + " live, " + format_bytes(account.cached()) + " cached, " +
         format_bytes(account.free_bytes) + " free of " + format_bytes(account.total_bytes);
}

std::string takeable_words(const Account& account, const Situation& now) {
  if (now.limit_left < account.free_bytes) {
    const std::string left =
        (account.limit_below_bytes ? "at least " : "") + format_bytes(now.limit_left);
    return "the limit leaves " + left + " (the device has " + format_bytes(account.free_bytes) +
           " free)";
  }
  return "the device has " + format_bytes(account.free_bytes) + " free";
}

std::string shortage_summary(const Account& account, const Situation& now) {
  return "shortage: the request needs " + format_bytes(now.asked) + "; " +
         takeable_words(account, now) + " and " + format_bytes(account.cached()) +
         " is cached, together " + format_bytes(saturating_subtract(now.asked, now.unfragmented)) +
         " too little";
}

std::string fragmentation_summary(const Account& account, const Situation& now) {
  if (now.missing_here == 0) {
    return "the device refused " + format_bytes(now.asked) + " although " +
           takeable_words(account, now) + "; it may not be able to give all that it counts as free";
  }
  std::string out =
      "fragmentation: the request needs " + format_bytes(now.asked) + "; " +
      takeable_words(account, now) + " and " + format_bytes(account.cached()) +
      " is cached, together enough, but not in " +
      (account.page_bytes == 0 ? "one usable piece"
                               : "whole pages of " + format_bytes(account.page_bytes));
  if (account.largest_cached_bytes != 0) {
    out += " (the largest cached block is " + format_bytes(account.largest_cached_bytes) + ")";
  }
  return out;
}

// From which limit on the cached and the free bytes together are enough.
std::string depends_words(const Account& account, const Situation& now) {
  const std::uint64_t enough =
      saturating_subtract(saturating_add(account.reserved(), now.asked), account.cached());
  return ". The limit was between " + format_bytes(*account.limit_bytes) + " and " +
         format_bytes(*account.limit_below_bytes) + "; if it was " + format_bytes(enough) +
         " or more, this is fragmentation";
}

// --- The remedies --------------------------------------------------------------------------------

class Remedies {
 public:
  Remedies(const Account& account, const Situation& now) : account_(account), now_(now) {}

  std::vector<Remedy> all() && {
    from_the_cache();
    from_the_limit();
    from_other_processes();
    from_activations();
    from_optimizer_state();
    from_the_largest_category();
    from_the_largest_site();
    drop_negligible();
    // Remedies that suffice come first; otherwise the order is the one above, from cheap to
    // expensive.
    std::stable_partition(
        remedies_.begin(), remedies_.end(), [](const Remedy& remedy) { return remedy.is_enough; });
    return std::move(remedies_);
  }

 private:
  // Below a hundredth of what is missing a remedy is not worth its line, unless there is no other.
  void drop_negligible() {
    const auto is_negligible = [&](const Remedy& remedy) {
      return remedy.gain_bytes < now_.missing_here / 100;
    };
    if (!std::ranges::all_of(remedies_, is_negligible)) {
      std::erase_if(remedies_, is_negligible);
    } else if (remedies_.size() > 1) {
      Remedy best = *std::ranges::max_element(remedies_, {}, &Remedy::gain_bytes);
      remedies_ = {std::move(best)};
    }
  }

  void put(RemedyKind kind, std::string action, std::uint64_t gain_bytes) {
    if (gain_bytes == 0) return;
    remedies_.push_back({.action = std::move(action),
                         .gain_bytes = gain_bytes,
                         .is_enough = gain_bytes >= now_.missing_here,
                         .kind = kind});
  }

  // Of live blocks. Those may be all that holds cached memory in place, so that less than what is
  // missing can be enough; the numbers do not say which.
  void put_live(RemedyKind kind, std::string action, std::uint64_t gain_bytes) {
    if (gain_bytes == 0) return;
    put(kind, std::move(action), gain_bytes);
    remedies_.back().may_gain_more =
        saturating_add(gain_bytes, account_.cached_hard_bytes) >= now_.missing_here;
  }

  [[nodiscard]] std::uint64_t live(Category category) const {
    return account_.live_bytes[static_cast<std::size_t>(category)];
  }

  void from_the_cache() {
    // Pages that move have been tried, those of other streams too.
    const bool is_stuck = account_.page_bytes == 0;
    if (is_stuck) {
      put(RemedyKind::kEmptyCache,
          "call empty_cache (or trim): it gives segments without live blocks back to the device",
          account_.cached_soft_bytes);
    }
    if (!account_.is_expandable) {
      put(RemedyKind::kExpandableSegments,
          "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: cached memory beside live blocks "
          "becomes usable",
          account_.cached_hard_bytes);
    }
    put(RemedyKind::kSynchronize,
        "synchronize before allocating: freed blocks wait for other streams to finish with them",
        account_.pending_bytes);
    if (is_stuck) {
      put(RemedyKind::kOneStream,
          "allocate on one stream, and call record_stream where another reads: a cached block "
          "serves only its own stream",
          account_.cached_stream_bytes);
    }
  }

  void from_the_limit() {
    if (!account_.limit_bytes || now_.limit_left >= account_.free_bytes) return;
    const std::uint64_t gain = account_.free_bytes - now_.limit_left;
    const std::string from = account_.limit_below_bytes
                                 ? "raise the limit"
                                 : "raise the limit of " + format_bytes(*account_.limit_bytes);
    if (gain >= now_.missing_here) {
      const std::uint64_t least =
          saturating_add(account_.reserved(), saturating_subtract(now_.asked, now_.movable));
      put(RemedyKind::kRaiseLimit,
          from + " to at least " + format_bytes(least) + " (" + format_count(least) + " bytes)",
          gain);
    } else {
      put(RemedyKind::kRaiseLimit, from + ", as far as the device has free memory", gain);
    }
  }

  void from_other_processes() {
    // Under a limit, room on the device helps only as far as the limit goes.
    const std::uint64_t then = std::min(
        saturating_add(account_.free_bytes, account_.other_processes_bytes), now_.limit_left);
    std::string action = "end other processes on the device";
    const device::ProcessMemory* largest = nullptr;
    for (const device::ProcessMemory& process : account_.processes) {
      if (process.is_self || process.used_bytes == 0) continue;
      if (largest == nullptr || process.used_bytes > largest->used_bytes) largest = &process;
    }
    if (largest != nullptr) {
      action += ": process " + std::to_string(largest->pid);
      if (!largest->name.empty()) action += " (" + largest->name + ")";
      action += " has " + format_bytes(largest->used_bytes);
    }
    put(RemedyKind::kEndProcesses, std::move(action), saturating_subtract(then, now_.takeable));
  }

  // How far the batch must shrink, in whole percent, if activations grow with it.
  void from_activations() {
    const std::uint64_t held = live(Category::kActivation);
    if (held == 0) return;
    const std::string what = "shrink activations (" + format_bytes(held) + "): ";
    const std::uint64_t kept_percent = percent(saturating_subtract(held, now_.missing_here), held);
    if (kept_percent == 0) {
      // Nothing would be left of them, so this cannot be called enough.
      put_live(
          RemedyKind::kShrinkActivations, what + "checkpoint them, or use a smaller batch", held);
      remedies_.back().is_enough = false;
      return;
    }
    std::array<char, 32> factor{};
    std::snprintf(
        factor.data(), factor.size(), "0.%02llu", static_cast<unsigned long long>(kept_percent));
    put_live(RemedyKind::kShrinkActivations,
             what + "checkpoint some of them, or use " + factor.data() +
                 " of the batch if they grow with it",
             held - share(held, kept_percent));
  }

  void from_optimizer_state() {
    const std::uint64_t held = live(Category::kOptimizerState);
    put_live(RemedyKind::kMoveOptimizerState,
             "move optimizer state (" + format_bytes(held) +
                 ") to main memory, or keep it in 8 bits (a quarter of its size in 32 bits)",
             held);
  }

  void from_the_largest_category() {
    const auto largest = std::max_element(account_.live_bytes.begin(), account_.live_bytes.end());
    const std::string held = format_bytes(*largest);
    switch (static_cast<Category>(largest - account_.live_bytes.begin())) {
      case Category::kParameter:
        return put_live(
            RemedyKind::kShardParameters,
            "shard parameters (" + held + ") over two devices, or store them in half the bits",
            *largest / 2);
      case Category::kGradient:
        return put_live(RemedyKind::kReleaseGradients,
                        "release gradients (" + held + ") before the next forward pass",
                        *largest);
      case Category::kWorkspace:
        return put_live(RemedyKind::kLimitWorkspaces,
                        "limit the libraries' workspaces (" + held + ")",
                        *largest);
      case Category::kData:
        return put_live(RemedyKind::kKeepLessData,
                        "keep fewer batches of data (" + held + ") on the device",
                        *largest);
      default:
        return;  // named above, or without a category
    }
  }

  void from_the_largest_site() {
    if (account_.sites.empty() || account_.sites.front().site.starts_with('(')) return;
    const SiteBytes& site = account_.sites.front();
    put_live(RemedyKind::kLookAtSite,
             "look first at " + site.site + ", which holds the most",
             site.size_bytes);
  }

  // floor(100 * part / whole), at most 99, without overflow.
  static std::uint64_t percent(std::uint64_t part, std::uint64_t whole) {
    const std::uint64_t exact =
        part <= UINT64_MAX / 100 ? part * 100 / whole : part / (whole / 100 + 1);
    return std::min<std::uint64_t>(exact, 99);
  }
  static std::uint64_t share(std::uint64_t whole, std::uint64_t percent) {
    return whole / 100 * percent + whole % 100 * percent / 100;
  }

  const Account& account_;
  const Situation& now_;
  std::vector<Remedy> remedies_;
};

}  // namespace

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kFits:
      return "fits";
    case Verdict::kFragmentation:
      return "fragmentation";
    case Verdict::kShortage:
      return "shortage";
  }
  return "?";
}

Explanation explain(const Account& account) {
  const Situation now = situation_of(account, account.limit_bytes);
  if (now.asked == 0) return {.verdict = Verdict::kFits, .summary = fits_summary(account)};
  Explanation out;
  if (!now.is_short()) {
    out.verdict = Verdict::kFragmentation;
    out.missing_bytes = now.missing_here;
    out.summary = fragmentation_summary(account, now);
  } else {
    out.verdict = Verdict::kShortage;
    out.missing_bytes = now.asked - now.unfragmented;
    out.summary = shortage_summary(account, now);
    out.depends_on_limit =
        account.limit_below_bytes &&
        !situation_of(account, saturating_subtract(*account.limit_below_bytes, 1)).is_short();
    if (out.depends_on_limit) out.summary += depends_words(account, now);
  }
  if (now.missing_here > 0) out.remedies = Remedies(account, now).all();
  return out;
}

}  // namespace headroom::memory
