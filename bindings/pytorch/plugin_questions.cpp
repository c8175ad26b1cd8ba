// What Python asks of the plug-in through ctypes: settings, reports, statistics, scopes.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/memory/account.h"
#include "headroom/memory/allocator.h"
#include "headroom/memory/annotation.h"
#include "headroom/memory/api.h"
#include "headroom/memory/paged/paged_options.h"
#include "headroom/memory/peak_scope.h"
#include "headroom/memory/stats.h"

#include "bindings/pytorch/bridge/convert.h"
#include "bindings/pytorch/plugin.h"

// As in plugin.cpp.
#ifndef HEADROOM_TORCH_DEVICE
#define HEADROOM_TORCH_DEVICE "cuda"
#endif

namespace {

using headroom::memory::Account;
using headroom::memory::Allocator;
using headroom::memory::IdlePolicy;
using headroom::memory::PeakScope;
using headroom::torch_plugin::kMostDevices;
using headroom::torch_plugin::opened_allocator;

thread_local std::string t_text;   // NOLINT(readability-identifier-naming): the last answer
thread_local std::string t_wrong;  // NOLINT(readability-identifier-naming)

using Clock = std::chrono::steady_clock;

// What the user wants of every device, those to come too.
struct Wanted {
  std::mutex mutex;
  std::optional<std::uint64_t> limit_bytes;
  std::optional<IdlePolicy> idle;
  // Of each device: what it had taken from the driver in all when last looked at, and since when.
  struct Growth {
    std::int64_t device_allocations = -1;
    Clock::time_point since;
    std::uint64_t left_bytes = 0;  // in the cache, that the last trim could not give back
  };
  std::array<Growth, kMostDevices> growth{};
};

Wanted& wanted() {
  static Wanted& instance = *new Wanted;
  return instance;
}

std::uint64_t cached_bytes(const headroom::memory::Statistics& stats) noexcept {
  return static_cast<std::uint64_t>(stats.reserved_bytes.all.current -
                                    stats.active_bytes.all.current);
}

void trim_if_idle(Wanted::Growth& growth, const IdlePolicy& idle, Allocator& allocator) {
  const headroom::memory::Statistics stats = allocator.statistics();
  if (growth.device_allocations != stats.num_device_alloc) {
    growth = {.device_allocations = stats.num_device_alloc, .since = Clock::now()};
    return;
  }
  if (Clock::now() - growth.since < idle.after) return;
  if (cached_bytes(stats) <= std::max(idle.keep_bytes, growth.left_bytes)) return;
  allocator.trim(idle.keep_bytes);
  growth.left_bytes = cached_bytes(allocator.statistics());
}

// What a function of ours throws becomes `failed`, and a sentence.
template <class Answer, class Body>
Answer guarded(Answer failed, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    t_wrong.clear();
  } catch (const std::exception& error) {
    try {
      t_wrong = error.what();
    } catch (...) {
      t_wrong.clear();
    }
  }
  return failed;
}

const char* keep(std::string text) {
  t_text = std::move(text);
  return t_text.c_str();
}

template <class Body>
void for_each_opened(Body&& body) {
  for (int i = 0; i < kMostDevices; ++i) {
    Allocator* const allocator = opened_allocator(i);
    if (allocator != nullptr && !headroom::torch_plugin::is_forked()) body(i, *allocator);
  }
}

// The account of a device that nothing was allocated on has the card's lines.
Account account_of(int device) {
  return headroom::memory_account(HEADROOM_TORCH_DEVICE ":" + std::to_string(device));
}

// --- JSON ----------------------------------------------------------------------------------------

// Fields in the order in which they are given; a value is JSON already.
class JsonObject {
 public:
  JsonObject& raw(std::string_view key, std::string_view value) {
    text_ += text_.empty() ? "{" : ", ";
    text_ += quoted(key);
    text_ += ": ";
    text_ += value;
    return *this;
  }
  JsonObject& number(std::string_view key, std::uint64_t value) {
    return raw(key, std::to_string(value));
  }
  JsonObject& text(std::string_view key, std::string_view value) { return raw(key, quoted(value)); }
  [[nodiscard]] std::string str() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  static std::string quoted(std::string_view text) {
    static constexpr std::string_view kHex = "0123456789abcdef";
    std::string out = "\"";
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        out += {'\\', c};
      } else if (byte < 0x20) {
        out += "\\u00";
        out += {kHex[byte >> 4U], kHex[byte & 0xfU]};
      } else {
        out += c;
      }
    }
    return out + '"';
  }

  std::string text_;
};

// --- Scopes --------------------------------------------------------------------------------------

class Scope {
 public:
  Scope(std::string_view name, int device) : device_(device), annotation_(name) {
    if (Allocator* const allocator = opened_allocator(device)) peaks_.emplace(*allocator);
  }

  [[nodiscard]] std::string json() const {
    JsonObject json;
    json.text("path",
              headroom::memory::annotation_path(headroom::memory::current_context().annotation));
    if (peaks_) {
      json.number("peak_allocated", peaks_->peak_allocated())
          .number("peak_reserved", peaks_->peak_reserved())
          .number("peak_live", peaks_->peak_live());
    } else {  // The device's first allocation was in the scope, or has not been made.
      const Allocator* const allocator = opened_allocator(device_);
      const auto s =
          allocator == nullptr ? headroom::memory::Statistics{} : allocator->statistics();
      json.number("peak_allocated", static_cast<std::uint64_t>(s.allocated_bytes.all.peak))
          .number("peak_reserved", static_cast<std::uint64_t>(s.reserved_bytes.all.peak))
          .number("peak_live", static_cast<std::uint64_t>(s.live_bytes.peak));
    }
    return json.str();
  }

 private:
  int device_;
  headroom::memory::AnnotationScope annotation_;
  std::optional<PeakScope> peaks_;
};

// Of this thread, innermost last; those that it left open end in that order, too.
struct Scopes {
  std::vector<std::unique_ptr<Scope>> open;
  ~Scopes() {
    while (!open.empty()) open.pop_back();
  }
};

std::vector<std::unique_ptr<Scope>>& scopes() {
  thread_local Scopes instance;  // NOLINT(readability-identifier-naming)
  return instance.open;
}

}  // namespace

namespace headroom::torch_plugin {

void apply_settings(Allocator& allocator) {
  Wanted& all = wanted();
  const std::lock_guard lock(all.mutex);
  if (all.limit_bytes && allocator.limit().value_or(UINT64_MAX) > *all.limit_bytes) {
    allocator.set_limit(all.limit_bytes);
  }
}

}  // namespace headroom::torch_plugin

extern "C" {

int headroom_torch_prepare() noexcept {
  return guarded(-1, [] {
    headroom::torch_plugin::prepare();
    return 0;
  });
}

int headroom_torch_configure(const char* settings) noexcept {
  return guarded(-1, [&] {
    headroom::torch_plugin::prepare();
    headroom::set_allocator_settings(settings);
    return 0;
  });
}

int headroom_torch_set_limit(uint64_t bytes) noexcept {
  return guarded(-1, [&] {
    const auto limit = bytes == UINT64_MAX ? std::nullopt : std::optional(bytes);
    {
      Wanted& all = wanted();
      const std::lock_guard lock(all.mutex);
      all.limit_bytes = limit;
    }
    for_each_opened([&](int, Allocator& allocator) { allocator.set_limit(limit); });
    return 0;
  });
}

int headroom_torch_idle_trim(int64_t after_ms, uint64_t keep_bytes) noexcept {
  return guarded(-1, [&] {
    std::optional<IdlePolicy> idle;
    if (after_ms > 0) {
      idle = IdlePolicy{.after = std::chrono::milliseconds(after_ms), .keep_bytes = keep_bytes};
    }
    Wanted& all = wanted();
    const std::lock_guard lock(all.mutex);
    all.idle = idle;
    all.growth = {};
    return 0;
  });
}

void headroom_torch_tick() noexcept {
  (void)guarded(-1, [] {
    Wanted& all = wanted();
    const std::lock_guard lock(all.mutex);
    for_each_opened([&](int device, Allocator& allocator) {
      if (allocator.is_capturing()) return;
      allocator.process_events();
      if (all.idle)
        trim_if_idle(all.growth[static_cast<std::size_t>(device)], *all.idle, allocator);
    });
    return 0;
  });
}

const char* headroom_torch_report(int device) noexcept {
  return guarded<const char*>(nullptr, [&] { return keep(to_text(account_of(device))); });
}

const char* headroom_torch_account(int device) noexcept {
  return guarded<const char*>(nullptr,
                              [&] { return keep(headroom::bridge::to_json(account_of(device))); });
}

const char* headroom_torch_stats(int device) noexcept {
  return guarded<const char*>(nullptr, [&] {
    const Allocator* const allocator = opened_allocator(device);
    const auto stats =
        allocator == nullptr ? headroom::memory::Statistics{} : allocator->statistics();
    JsonObject json;
    for (const auto& [key, value] : flatten(stats)) json.raw(key, std::to_string(value));
    return keep(json.str());
  });
}

double headroom_torch_get_memory_fraction(int device) noexcept {
  return guarded(-1.0, [&] {
    const Allocator* const allocator = opened_allocator(device);
    return allocator == nullptr ? 1.0 : allocator->memory_fraction();
  });
}

int headroom_torch_reset_peaks(int device) noexcept {
  if (Allocator* const allocator = opened_allocator(device)) allocator->reset_peak_statistics();
  return 0;
}

int headroom_torch_reset_accumulated(int device) noexcept {
  if (Allocator* const allocator = opened_allocator(device)) {
    allocator->reset_accumulated_statistics();
  }
  return 0;
}

int headroom_torch_scope_push(const char* name, int device) noexcept {
  return guarded(-1, [&] {
    if (name == nullptr || *name == '\0') {
      throw headroom::InvalidArgument("scope: a name is needed");
    }
    scopes().push_back(std::make_unique<Scope>(name, device));
    return 0;
  });
}

const char* headroom_torch_scope_pop() noexcept {
  return guarded<const char*>(nullptr, [] {
    auto& open = scopes();
    if (open.empty()) throw headroom::InvalidArgument("scope: this thread has none open");
    std::string json = open.back()->json();
    open.pop_back();
    return keep(std::move(json));
  });
}

const char* headroom_torch_last_error() noexcept {
  return t_wrong.empty() ? "the host has no memory left" : t_wrong.c_str();
}

}  // extern "C"
