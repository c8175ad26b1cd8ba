// The queue between an allocator and the thread that writes a recording.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "headroom/base/tick_clock.h"
#include "headroom/memory/event.h"
#include "headroom/trace/record/file_recorder.h"
#include "headroom/trace/record/internal/capture.h"
#include "headroom/trace/record/internal/event_record.h"
#include "headroom/trace/record/internal/spsc_ring.h"
#include "headroom/trace/record/internal/stack_interner.h"
#include "headroom/trace/record/internal/trace_builder.h"

namespace headroom::trace::internal {

// Room for the stacks on their way; they are few, as each goes over once.
inline constexpr std::size_t kStackWords = std::size_t{1} << 17U;
inline constexpr std::size_t kSourceStackWords = 2;  // they do not go over: they have numbers

// More than they take in a file.
inline constexpr std::uint64_t kPackedStackBytes = 32;
inline constexpr std::uint64_t kPackedFrameBytes = 8;

// What tells the writing thread to look at the queues before its time.
struct Bell {
  std::mutex mutex;
  std::condition_variable rung;
  bool is_rung = false;

  __attribute__((noinline)) void ring() noexcept {
    {
      const std::lock_guard lock(mutex);
      is_rung = true;
    }
    rung.notify_one();
  }
};

// The queue of one allocator: record() is called under that allocator's lock, the rest by the
// writing thread.
class FileChannel final : public memory::EventSink {
 public:
  FileChannel(DeviceKey key, const FileOptions& options, Bell& bell)
      : stacks_options_(options.stacks),
        source_(options.stack_source),
        is_quick_(has_steady_counter() && options.stacks.mode == StackMode::kNone),
        events_(options.queue_events),
        wake_mask_(std::bit_floor(events_.capacity() / 4 + 1) - 1),
        stack_words_(source_ == nullptr ? kStackWords : kSourceStackWords),
        bell_(bell),
        key_(key) {}

  void record(const memory::Event& event) noexcept override {
    if (is_quick_) [[likely]] {
      return keep(event, counter_ticks(), StackInterner::kNone);
    }
    record_slowly(event, __builtin_frame_address(0));
  }

  // The next events, up to all of `out`.
  std::span<EventRecord> pop(std::vector<EventRecord>& out) {
    return std::span(out).first(events_.pop(out));
  }

  // The stacks that events up to now name, into the trace. New ones take of the `room` in bytes
  // that the file has for them, and are left out where it is used up.
  StackId stack_of(std::uint32_t id, TraceBuilder& builder, std::uint64_t& room) {
    if (source_ != nullptr) return named_stack(id, builder, room);
    while (id >= stack_ids_.size()) take_stack(builder, room);
    return stack_ids_[id];
  }

  [[nodiscard]] const DeviceKey& key() const noexcept { return key_; }
  [[nodiscard]] std::uint64_t dropped() const noexcept {
    return dropped_.load(std::memory_order_relaxed);
  }
  // What of it the file says; for the writing thread.
  std::uint64_t dropped_written = 0;

 private:
  __attribute__((noinline)) void record_slowly(const memory::Event& event,
                                               const void* frame) noexcept {
    const bool has_stack = wants_stack(stacks_options_.mode, event.action);
    std::uint32_t stack = StackInterner::kNone;
    if (has_stack) stack = source_ != nullptr ? source_->current() : stack_id(frame);
    keep(event, ticks(), stack);
  }

  void keep(const memory::Event& event, std::uint64_t ticks, std::uint32_t stack) noexcept {
    EventRecord* slot = events_.claim();
    if (slot != nullptr) [[likely]] {
      EventRecord::write(event, ticks, stack, [slot](std::size_t i, std::uint64_t word) {
        slot->words[i] = word;
      });
      events_.commit();
      events_.prefetch(EventRecord::kAhead);
    } else {
      dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    if ((++recorded_ & wake_mask_) == 0) [[unlikely]] {
      bell_.ring();
    }
  }

  std::uint32_t stack_id(const void* frame) noexcept {
    // The count of addresses goes over before them. Filled as far as it is used.
    std::array<std::uint64_t, kMostFrames + 1> words;
    const auto addresses = capture(stacks_options_, frame, std::span(words).subspan(1));
    const std::uint64_t hash = StackInterner::hash_of(addresses);
    const std::uint32_t known = interner_.find(addresses, hash);
    if (known != StackInterner::kNone) return known;
    words[0] = addresses.size();
    // Numbers are given on both sides in the same order, so what does not go over gets none.
    const std::span<const std::uint64_t> message(words.data(), addresses.size() + 1);
    if (is_out_of_step_ || !stack_words_.push(message)) return StackInterner::kNone;
    const std::uint32_t id = interner_.add(addresses, hash);
    is_out_of_step_ = id == StackInterner::kNone;
    return id;
  }

  void take_stack(TraceBuilder& builder, std::uint64_t& room) {
    std::uint64_t count = 0;
    stack_words_.pop({&count, 1});
    std::vector<std::uint64_t> addresses(count);
    stack_words_.pop(addresses);
    stack_ids_.push_back(takes_room(count, room) ? builder.stack(addresses) : 0);
  }

  StackId named_stack(std::uint32_t id, TraceBuilder& builder, std::uint64_t& room) {
    if (id == StackSource::kNone) return 0;
    if (id >= stack_ids_.size()) stack_ids_.resize(id + 1, 0);
    StackId& known = stack_ids_[id];
    if (known == 0 && room != 0) {
      const std::vector<NamedFrame> frames = source_->frames_of(id);
      if (takes_room(frames.size(), room)) known = builder.stack(frames);
    }
    return known;
  }

  static bool takes_room(std::uint64_t frames, std::uint64_t& room) noexcept {
    const std::uint64_t bytes = kPackedStackBytes + frames * kPackedFrameBytes;
    const bool is_there = bytes <= room;
    room = is_there ? room - bytes : 0;
    return is_there;
  }

  // The allocator's side.
  StackOptions stacks_options_;
  const StackSource* source_;
  bool is_quick_;  // neither stacks nor the system's clock
  SpscRing<EventRecord> events_;
  std::uint64_t wake_mask_;
  std::uint64_t recorded_ = 0;
  StackInterner interner_;
  bool is_out_of_step_ = false;
  // Both.
  SpscRing<std::uint64_t> stack_words_;
  std::atomic<std::uint64_t> dropped_{0};
  Bell& bell_;
  // The writing thread's side.
  DeviceKey key_;
  std::vector<StackId> stack_ids_{0};
};

}  // namespace headroom::trace::internal
