#include "headroom/memory/account.h"

#include <algorithm>
#include <string>
#include <utility>

#include "headroom/base/bytes.h"
#include "headroom/base/checked.h"

namespace headroom::memory {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kLabelWidth = 40;
constexpr std::size_t kSizeWidth = 11;
constexpr std::size_t kBytesWidth = 27;  // 2^64 - 1 with its commas takes 26
constexpr std::size_t kSitesShown = 5;

// An account is filled from several sources; a sum that does not fit must still print.

std::string left(std::string_view text, std::size_t width) {
  std::string out(text);
  if (out.size() < width) out.append(width - out.size(), ' ');
  return out;
}
std::string right(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string exact(std::uint64_t size_bytes) {
  return format_bytes(size_bytes) + " (" + format_count(size_bytes) + " bytes)";
}

std::string row(std::string_view label, std::uint64_t size_bytes) {
  return "  " + left(label, kLabelWidth) + right(format_bytes(size_bytes), kSizeWidth) +
         right(format_count(size_bytes), kBytesWidth) + "\n";
}

std::string rule() {
  return "  " + std::string(kLabelWidth + kSizeWidth + kBytesWidth, '-') + "\n";
}

// Names of sites and processes come from outside and may hold anything.
std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7f) c = '?';
  }
  return out;
}

// Breaks `words` between words so that no line passes the width. The first line starts with `lead`,
// the others with as many blanks. A word longer than a line is cut.
std::string wrapped(std::string_view lead, std::string_view words) {
  const std::string cleaned = printable(words);
  std::string_view text = cleaned;
  const std::size_t room = kWidth - lead.size();
  std::string out(lead);
  std::size_t used = 0;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    while (!word.empty()) {
      const std::string_view part = word.substr(0, room);
      if (used > 0 && used + 1 + part.size() > room) {
        out += "\n" + std::string(lead.size(), ' ');
        used = 0;
      }
      if (used > 0) out += ' ';
      out += part;
      used += part.size() + (used > 0 ? 1 : 0);
      word.remove_prefix(part.size());
    }
  }
  return out + "\n";
}

// The end of a path says most, so that is what is kept of a long one.
std::string site_label(const SiteBytes& site) {
  std::string name = printable(site.site);
  const std::string blocks =
      site.blocks == 1 ? ", 1 block" : ", " + format_count(site.blocks) + " blocks";
  const std::size_t room = kLabelWidth - std::min(kLabelWidth - 4, blocks.size());
  if (name.size() > room) {
    std::size_t first = name.size() - (room - 3);
    // Not in the middle of a UTF-8 character.
    while (first < name.size() && (static_cast<unsigned char>(name[first]) & 0xC0U) == 0x80U) {
      ++first;
    }
    name = "..." + name.substr(first);
  }
  return name + blocks;
}

std::string lines_text(const Account& account) {
  std::string out;
  for (const AccountLine& line : lines(account)) out += row(line.label, line.size_bytes);
  out += rule();
  out += row("total", account.total_bytes);
  return out;
}

// Never hidden: whoever filled the account has missed or counted twice.
std::string mismatch_text(const Account& account) {
  const std::uint64_t sum = account.sum();
  if (sum == account.total_bytes) return "";
  const bool is_more = sum > account.total_bytes;
  const std::uint64_t difference = is_more ? sum - account.total_bytes : account.total_bytes - sum;
  return wrapped("  ",
                 "DOES NOT ADD UP: the lines sum to " + format_count(sum) + ", " +
                     format_count(difference) + (is_more ? " more" : " less") + " than the total");
}

std::string limit_words(const Account& account) {
  if (!account.limit_below_bytes) return " of a limit of " + format_bytes(*account.limit_bytes);
  return " of a limit between " + format_bytes(*account.limit_bytes) + " and " +
         format_bytes(*account.limit_below_bytes);
}

std::string reserved_text(const Account& account) {
  std::string text = "reserved " + format_bytes(account.reserved());
  if (account.limit_bytes) text += limit_words(account);
  if (account.largest_cached_bytes != 0) {
    text += ", largest cached block " + format_bytes(account.largest_cached_bytes);
  }
  if (account.sleeping_bytes != 0) {
    text += ", beside blocks of " + format_bytes(account.sleeping_bytes) + " asleep";
  }
  if (account.page_bytes != 0) {
    text += ", in pages of " + format_bytes(account.page_bytes);
  } else if (account.is_expandable) {
    text += ", expandable segments";
  }
  return wrapped("  ", text);
}

std::string sites_text(const Account& account) {
  if (account.sites.empty()) return "";
  std::string out = "\nlive, by place in the program (site)\n";
  const std::size_t shown = std::min(kSitesShown, account.sites.size());
  for (std::size_t i = 0; i < shown; ++i) {
    out += row(site_label(account.sites[i]), account.sites[i].size_bytes);
  }
  std::uint64_t rest = 0;
  for (std::size_t i = shown; i < account.sites.size(); ++i) {
    rest = saturating_add(rest, account.sites[i].size_bytes);
  }
  const std::size_t more = account.sites.size() - shown;
  if (more > 0) out += row(format_count(more) + (more == 1 ? " other site" : " other sites"), rest);
  return out;
}

std::string asked_text(const Account& account) {
  if (account.asked_bytes == 0 && account.segment_asked_bytes == 0) return "";
  std::string text = "out of memory: asked for " + exact(account.asked_bytes) + " on stream " +
                     std::to_string(device::to_integer(account.asked_stream));
  if (account.segment_asked_bytes != account.asked_bytes) {
    text += ", which needs " + format_bytes(account.segment_asked_bytes) + " from the device";
  }
  return wrapped("", text) + "\n";
}

std::string_view effect(const Remedy& remedy) {
  if (remedy.is_enough) return ", enough for this request";
  return remedy.may_gain_more ? ", more if it empties a whole segment" : ", not enough by itself";
}

std::string explanation_text(const Explanation& explanation) {
  std::string out;
  if (!explanation.summary.empty()) out += "\n" + wrapped("", explanation.summary);
  for (std::size_t i = 0; i < explanation.remedies.size(); ++i) {
    const Remedy& remedy = explanation.remedies[i];
    const std::string gain =
        remedy.is_proved || remedy.is_unmeasured
            ? std::string()
            : "; gains up to " + format_bytes(remedy.gain_bytes) + std::string(effect(remedy));
    out += wrapped("  " + std::to_string(i + 1) + ". ", remedy.action + gain);
  }
  if (explanation.verdict != Verdict::kFits) out += "\n" + std::string(kWordsLine);
  return out;
}

}  // namespace

std::uint64_t Account::live() const noexcept {
  std::uint64_t sum = 0;
  for (const std::uint64_t size_bytes : live_bytes) sum = saturating_add(sum, size_bytes);
  return sum;
}

std::uint64_t Account::cached() const noexcept {
  return saturating_add(saturating_add(cached_stream_bytes, cached_hard_bytes), cached_soft_bytes);
}

std::uint64_t Account::reserved() const noexcept {
  return saturating_add(saturating_add(saturating_add(live(), rounding_bytes), pending_bytes),
                        cached());
}

std::uint64_t Account::sum() const noexcept {
  return saturating_add(
      saturating_add(saturating_add(reserved(), outside_bytes), other_processes_bytes), free_bytes);
}

std::uint64_t Account::used() const noexcept {
  return total_bytes > free_bytes ? total_bytes - free_bytes : 0;
}

Account with_device_lines(Account account,
                          const device::MemoryInfo& info,
                          std::vector<device::ProcessMemory> processes) {
  account.total_bytes = info.total_bytes;
  account.free_bytes = info.free_bytes;
  account.processes = std::move(processes);
  account.other_processes_bytes = 0;
  for (const device::ProcessMemory& process : account.processes) {
    if (process.is_self) continue;
    account.other_processes_bytes =
        saturating_add(account.other_processes_bytes, process.used_bytes);
  }
  // The rest of the card is what this process holds besides: the context, libraries. Other
  // processes are measured at another moment, so they give way first should the sum not fit.
  const std::uint64_t known = saturating_add(account.reserved(), account.free_bytes);
  const std::uint64_t rest = account.total_bytes > known ? account.total_bytes - known : 0;
  account.other_processes_bytes = std::min(account.other_processes_bytes, rest);
  account.outside_bytes = rest - account.other_processes_bytes;
  return account;
}

Account ending_at_limit(Account account) {
  if (!account.limit_bytes) return account;
  account.free_bytes = saturating_subtract(*account.limit_bytes, account.reserved());
  account.outside_bytes = 0;
  account.other_processes_bytes = 0;
  account.processes.clear();
  account.total_bytes = saturating_add(account.reserved(), account.free_bytes);
  return account;
}

std::vector<AccountLine> lines(const Account& account) {
  std::vector<AccountLine> out;
  const auto line = [&](std::string label, std::uint64_t size_bytes) {
    if (size_bytes != 0) out.push_back({std::move(label), size_bytes});
  };
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    line("live: " + std::string(plain_name(static_cast<Category>(i))), account.live_bytes[i]);
  }
  line("unused ends of live blocks (rounding)", account.rounding_bytes);
  line("freed, a stream still uses it (pending)", account.pending_bytes);
  line("cached, for other streams only (stream)", account.cached_stream_bytes);
  line("cached, stuck beside live blocks (hard)", account.cached_hard_bytes);
  line("cached, can be given back (soft)", account.cached_soft_bytes);
  line("context and libraries", account.outside_bytes);
  line("other processes", account.other_processes_bytes);
  out.push_back({"free", account.free_bytes});
  return out;
}

std::string to_text(const Account& account) { return to_text(account, explain(account)); }

std::string to_text(const Account& account, const Explanation& explanation) {
  return asked_text(account) + "memory of " + device::to_string(account.device) + "\n" +
         lines_text(account) + mismatch_text(account) + reserved_text(account) +
         sites_text(account) + explanation_text(explanation);
}

}  // namespace headroom::memory
