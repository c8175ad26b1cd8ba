// Traffic: what a generator writes its requests into, and the program that comes out.
//
//   Traffic traffic({.seed = 1});
//   const Block weights = traffic.allocate(64_MiB);
//   traffic.free(weights);
//   const replay::Program program = traffic.finish().program;
//
// A generator that frees twice, or a block that was never there, is a mistake of ours: it is
// checked, and ends the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headroom/replay/program.h"

#include "benchmarks/paged/random.h"

namespace headroom::bench {

struct TrafficOptions {
  std::uint64_t seed = 1;
  int percent = 100;  // of the repetitions: less for tests
};

// A block that is held, by its slot in the program.
struct Block {
  std::uint32_t slot = UINT32_MAX;
};
// A block that was freed while another stream still uses it.
struct Hold {
  std::uint32_t number = UINT32_MAX;
};

struct Made {
  replay::Program program{};
  std::uint64_t steps = 0;       // iterations, where the traffic has some
  std::uint64_t kept_bytes = 0;  // still live at the end
};

class Traffic {
 public:
  explicit Traffic(const TrafficOptions& options);

  [[nodiscard]] Random& random() noexcept { return random_; }
  // So many repetitions as the options leave of them, at least one.
  [[nodiscard]] int times(int count) const noexcept;

  // Streams and pools are numbers from 0, the default stream and the ordinary memory.
  [[nodiscard]] Block allocate(std::uint64_t size_bytes, unsigned stream = 0, unsigned pool = 0);
  void free(Block block);
  // Frees a block that another stream uses until complete().
  [[nodiscard]] Hold free_while_used(Block block);
  void complete(Hold hold);
  // A block that is gone as soon as it was there: an op's workspace.
  void use_briefly(std::uint64_t size_bytes, unsigned stream = 0);
  void empty_cache();
  void mark_step() noexcept { ++steps_; }

  [[nodiscard]] std::uint64_t size_of(Block block) const { return sizes_[block.slot]; }
  // Rounded to 512 bytes, as everywhere.
  [[nodiscard]] std::uint64_t live_bytes() const noexcept { return live_; }
  [[nodiscard]] std::uint64_t requests() const noexcept { return program_.allocs; }

  [[nodiscard]] Made finish();

 private:
  // An op that frees while another stream uses the block. Its number is known once it completes.
  struct OpenHold {
    std::size_t op = 0;
    std::uint32_t slot = 0;
    std::uint64_t size_bytes = 0;
    bool is_open = true;
  };

  void push(const replay::Op& op);
  [[nodiscard]] std::uint16_t stream_index(unsigned stream);
  [[nodiscard]] std::uint8_t pool_index(unsigned pool);
  void check_held(Block block) const;

  TrafficOptions options_;
  Random random_;
  replay::Program program_{};
  std::vector<std::uint64_t> sizes_{};  // by slot; 0 where nothing is held
  std::vector<std::uint32_t> free_slots_{};
  std::vector<OpenHold> holds_{};
  std::uint64_t completed_ = 0;
  std::uint64_t live_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace headroom::bench
