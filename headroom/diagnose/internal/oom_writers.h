// By which words each writer is known, and how its numbers are read.
#pragma once

#include <string_view>
#include <vector>

#include "headroom/diagnose/internal/squeezed.h"
#include "headroom/diagnose/oom_message.h"

namespace headroom::diagnose::internal {

// How much a text says by itself.
enum class Strength : std::uint8_t {
  kHint,     // may have another cause; of no interest beside anything else
  kPartial,  // an echo: of no interest beside a whole message of the same writer
  kWhole,
};

// Words of a message in a squeezed log.
struct Spot {
  std::size_t at = 0;
  Writer writer = Writer::kPyTorchCuda;
  Strength strength = Strength::kWhole;
};

// In the order of the text; one pass over it.
[[nodiscard]] std::vector<Spot> find_spots(std::string_view text);

// Where a text without spots says `out of memory` of a GPU all the same, in words of its own.
[[nodiscard]] std::vector<Spot> find_hints(std::string_view text);

struct ReadMessage {
  OomMessage message{};
  Strength strength = Strength::kWhole;
};

[[nodiscard]] inline ReadMessage plain_message(const Spot& spot) {
  return {.message = {.writer = spot.writer}, .strength = spot.strength};
}

// `before` is the text up to the spot, `text` from there to the next one. Unset: these words are no
// out-of-memory message here.
[[nodiscard]] std::optional<ReadMessage> read_spot(const Spot& spot,
                                                   std::string_view before,
                                                   std::string_view text);

// The same for what PyTorch's allocators of devices wrote, and for MPS.
[[nodiscard]] std::optional<ReadMessage> read_pytorch(const Spot& spot,
                                                      std::string_view before,
                                                      std::string_view text);
[[nodiscard]] ReadMessage read_mps(const Spot& spot, std::string_view text);

// What the log shows of the settings that PyTorch was started with: a line of a shell, of a
// Dockerfile, of Python. What a message advises is none of them.
struct SeenSettings {
  bool has_expandable_segments = false;
  bool has_max_split_size = false;
};
[[nodiscard]] SeenSettings settings_in(const Squeezed& log);
void add_settings(OomMessage& message, const SeenSettings& settings);

// The release that the reader names, if it may have written the message.
void add_version(OomMessage& message, const memory::PyTorchVersion& version);

// Fills in which process is ours, the verdict and the remedies.
void judge(OomMessage& message);

}  // namespace headroom::diagnose::internal
