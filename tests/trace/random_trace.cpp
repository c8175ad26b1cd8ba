#include "tests/trace/random_trace.h"

#include <algorithm>
#include <random>
#include <vector>

namespace headroom::trace::testing {
namespace {

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  Trace make(std::size_t events) {
    trace_.origin = flip() ? Origin::kPyTorch : Origin::kHeadroom;
    trace_.producer = flip() ? "headroom test" : "";
    fill_tables();
    for (int rank = 0; rank < 2; ++rank) {
      for (int device = 0; device < 2; ++device) add_device(rank, device, events / 5);
    }
    add_device(1, 0, events / 5);
    trace_.devices.back().is_host = true;
    for (std::uint64_t i = below(20); i > 0; --i) trace_.segments.push_back(segment());
    for (std::uint64_t i = below(20); i > 0; --i) trace_.annotations.push_back(annotation());
    if (flip()) trace_.settings = value(0);
    trace_.top_level_extras = id(trace_.extras.size());
    trace_.has_annotations = flip();
    trace_.has_host = flip();
    trace_.is_bare_list = flip();
    return std::move(trace_);
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool flip() { return below(2) == 0; }
  std::uint32_t id(std::size_t bound) { return static_cast<std::uint32_t>(below(bound)); }
  // Small numbers often, any number sometimes.
  std::uint64_t number() { return random_() >> below(64); }
  std::int64_t signed_number() {
    return static_cast<std::int64_t>(flip() ? number() : 0 - number());
  }
  std::string text() {
    std::string out(below(12), ' ');
    for (char& c : out) c = static_cast<char>(below(256));
    return out;
  }

  Value value(int depth) {
    switch (below(depth > 3 ? 6 : 9)) {
      case 0:
        return {};
      case 1:
        return {flip()};
      case 2:
        return {signed_number()};
      case 3:
        return {number()};
      case 4:
        return {static_cast<double>(signed_number()) / 7};
      case 5:
        return {text()};
      case 6:
        return {values(depth)};
      case 7:
        return {Value::Tuple{values(depth)}};
      default:
        break;
    }
    Value::Dict dict;
    for (std::uint64_t i = below(4); i > 0; --i) dict.emplace_back(text(), value(depth + 1));
    return {dict};
  }
  Value::List values(int depth) {
    Value::List list;
    for (std::uint64_t i = below(4); i > 0; --i) list.push_back(value(depth + 1));
    return list;
  }

  template <class T>
  std::optional<T> maybe(T value) {
    return flip() ? std::optional<T>(value) : std::nullopt;
  }

  void fill_tables() {
    for (std::uint64_t i = below(30); i > 0; --i) trace_.strings.intern(text());
    for (std::uint64_t i = below(10); i > 0; --i) trace_.extras.push_back(value(0));
    for (std::uint64_t i = below(20); i > 0; --i) trace_.stacks.intern(frames());
    for (std::uint64_t i = below(20); i > 0; --i) trace_.details.intern(details());
  }
  std::vector<Frame> frames() {
    std::vector<Frame> out;
    for (std::uint64_t i = below(30); i > 0; --i) {
      out.push_back({.name = id(trace_.strings.size()),
                     .file = id(trace_.strings.size()),
                     .line = static_cast<std::int64_t>(below(5)) - 1,
                     .extras = id(trace_.extras.size())});
    }
    return out;
  }
  memory::PoolId pool() { return {.graph = below(3), .user = number()}; }
  Details details() {
    Details out{.compile_context = maybe(id(trace_.strings.size())),
                .user_metadata = maybe(id(trace_.strings.size())),
                .pool = maybe(pool()),
                .category = maybe(static_cast<memory::Category>(below(memory::kCategoryCount))),
                .has_time = flip(),
                .extras = id(trace_.extras.size())};
    if (flip()) {
      out.forward_frames.emplace();
      for (std::uint64_t i = below(4); i > 0; --i) {
        out.forward_frames->push_back(id(trace_.strings.size()));
      }
    }
    return out;
  }

  void add_device(int rank, int device, std::size_t events) {
    trace_.devices.push_back({.device = device, .rank = rank, .dropped_events = number()});
    for (std::size_t i = below(2 * events + 1); i > 0; --i) {
      trace_.devices.back().events.push_back(
          {.action = static_cast<Action>(below(memory::kActionCount)),
           .address = number(),
           .size_bytes = number(),
           .stream = flip() ? 0 : number(),
           .time_us = signed_number(),
           .stack = id(trace_.stacks.size()),
           .details = id(trace_.details.size())});
    }
  }

  Segment segment() {
    Segment out{.device = static_cast<int>(below(9)) - 1,
                .rank = static_cast<int>(below(3)),
                .is_host = flip(),
                .address = number(),
                .size_bytes = number(),
                .allocated_bytes = maybe(number()),
                .active_bytes = maybe(number()),
                .requested_bytes = maybe(number()),
                .stream = number(),
                .is_small = flip(),
                .is_expandable = maybe(flip()),
                .pool = maybe(pool()),
                .stack = id(trace_.stacks.size()),
                .details = id(trace_.details.size())};
    for (std::uint64_t i = below(8); i > 0; --i) {
      out.blocks.push_back({.address = maybe(number()),
                            .size_bytes = number(),
                            .requested_bytes = maybe(number()),
                            .state = static_cast<memory::BlockState>(below(4)),
                            .stack = id(trace_.stacks.size()),
                            .details = id(trace_.details.size())});
    }
    return out;
  }

  Annotation annotation() {
    return {.name = id(trace_.strings.size()),
            .is_start = flip(),
            .device = static_cast<int>(below(4)),
            .rank = static_cast<int>(below(4)),
            .time_us = signed_number(),
            .extras = id(trace_.extras.size())};
  }

  std::mt19937_64 random_;
  Trace trace_;
};

std::string difference_of_tables(const Trace& a, const Trace& b) {
  if (a.strings.size() != b.strings.size()) return "the number of strings";
  for (StringId i = 0; i < a.strings.size(); ++i) {
    if (a.strings[i] != b.strings[i]) return "string " + std::to_string(i);
  }
  if (a.extras != b.extras) return "extras";
  if (a.stacks.size() != b.stacks.size()) return "the number of stacks";
  if (a.stacks.frame_count() != b.stacks.frame_count()) return "the number of frames";
  for (std::uint32_t i = 0; i < a.stacks.frame_count(); ++i) {
    if (a.stacks.frame(i) != b.stacks.frame(i)) return "frame " + std::to_string(i);
  }
  for (StackId i = 0; i < a.stacks.size(); ++i) {
    if (!std::ranges::equal(a.stacks.frame_ids(i), b.stacks.frame_ids(i))) {
      return "stack " + std::to_string(i);
    }
  }
  if (a.details.size() != b.details.size()) return "the number of details";
  for (DetailsId i = 0; i < a.details.size(); ++i) {
    if (a.details[i] != b.details[i]) return "details " + std::to_string(i);
  }
  return "";
}

}  // namespace

Trace random_trace(std::uint64_t seed, std::size_t events) { return Maker(seed).make(events); }

std::string difference(const Trace& a, const Trace& b) {
  if (a.origin != b.origin || a.producer != b.producer) return "origin or producer";
  if (std::string found = difference_of_tables(a, b); !found.empty()) return found;
  if (a.devices != b.devices) return "devices and their events";
  if (a.segments != b.segments) return "segments";
  if (a.annotations != b.annotations) return "annotations";
  if (a.settings != b.settings) return "settings";
  if (a.top_level_extras != b.top_level_extras) return "top level extras";
  if (a.has_annotations != b.has_annotations || a.has_host != b.has_host ||
      a.is_bare_list != b.is_bare_list) {
    return "flags";
  }
  return "";
}

}  // namespace headroom::trace::testing
