// How much memory does my simulation need, and will it stay within it?
//
// Massive MIMO: 16 users send QPSK symbols over 1,000 subcarriers to a base station with 64
// antennas, which detects them by linear MMSE, x = (H^H H + s^2 I)^-1 H^H y, one 16 x 16 system for
// each subcarrier and realisation of the channel. All in c64. The bytes follow from the shapes:
// they are computed, taken at once, and nothing grows after that. What persists is written in
// place; what an op returns comes out of the same memory again in the next batch.
//
//   example_massive_mimo [LIMIT AS A SHARE OF THE NEED] [REALISATIONS]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <headroom/autograd.h>
#include <headroom/memory.h>

using namespace headroom;

namespace {

struct Shapes {
  std::int64_t batch = 4;  // realisations of the channel
  std::int64_t carriers = 1000;
  std::int64_t antennas = 64;
  std::int64_t users = 16;
  std::int64_t symbols = 14;  // a slot

  [[nodiscard]] Shape channel() const { return {batch, carriers, antennas, users}; }
  [[nodiscard]] Shape sent() const { return {batch, carriers, users, symbols}; }
  [[nodiscard]] Shape received() const { return {batch, carriers, antennas, symbols}; }
};

std::uint64_t bytes_of(std::initializer_list<std::int64_t> sizes) {
  std::uint64_t bytes = size_bytes(kC64);
  for (const std::int64_t size : sizes) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

// What each stage holds beside what persists; the largest is what counts.
struct Need {
  explicit Need(const Shapes& s)
      : channel(bytes_of({s.batch, s.carriers, s.antennas, s.users})),
        sent(bytes_of({s.batch, s.carriers, s.users, s.symbols})),
        received(bytes_of({s.batch, s.carriers, s.antennas, s.symbols})),
        gram(bytes_of({s.batch, s.carriers, s.users, s.users})) {}

  [[nodiscard]] std::uint64_t persistent() const { return channel + sent + received; }
  [[nodiscard]] std::uint64_t draw() const { return 2 * sent; }               // parts, and both
  [[nodiscard]] std::uint64_t transmit() const { return received; }           // H x
  [[nodiscard]] std::uint64_t detect() const { return 2 * gram + 2 * sent; }  // and a factor
  [[nodiscard]] std::uint64_t compare() const { return 2 * sent; }
  // As the allocator takes it: whole pages of 4 MiB, and one of 2 MiB for single numbers.
  [[nodiscard]] std::uint64_t total() const {
    const std::uint64_t most = std::max({draw(), transmit(), detect(), compare()});
    return (persistent() + most + 4_MiB - 1) / 4_MiB * 4_MiB + 2_MiB;
  }

  std::uint64_t channel;
  std::uint64_t sent;
  std::uint64_t received;
  std::uint64_t gram;
};

class Simulation {
 public:
  explicit Simulation(const Shapes& shapes) : shapes_(shapes) {
    for (std::int64_t i = 0; i < shapes.users; ++i) unit_.select(0, i).select(0, i).fill_(1);
  }

  // The share of wrong bits at this noise.
  double run_batch(double variance) {
    draw_symbols();
    channel_.normal_();
    received_.normal_(0, std::sqrt(variance));
    received_ += matmul(channel_, sent_);
    const Tensor detected = detect(variance);
    const std::int64_t wrong = count_wrong(&real, detected) + count_wrong(&imag, detected);
    return static_cast<double>(wrong) / static_cast<double>(2 * sent_.numel());
  }

 private:
  // The signs of both parts are a bit each.
  void draw_symbols() {
    sent_.uniform_(-1, 1);
    const Tensor re = sign(real(sent_));
    const Tensor im = sign(imag(sent_));
    sent_.copy_(complex(re, im));
    sent_ *= std::sqrt(0.5);
  }

  // No copy of the channel is made: its conjugate is a flag of the matrix product.
  Tensor detect(double variance) {
    const Tensor gram = adjoint_matmul(channel_, channel_);
    gram.add_(unit_, variance);
    return solve_positive(gram, adjoint_matmul(channel_, received_));
  }

  std::int64_t count_wrong(Tensor (*part)(const Tensor&), const Tensor& detected) {
    const Tensor product = part(detected);
    product *= part(sent_);
    return lt(product, 0).sum().item<std::int64_t>();
  }

  Shapes shapes_;
  Tensor channel_ = empty(shapes_.channel(), {.dtype = kC64});
  Tensor sent_ = empty(shapes_.sent(), {.dtype = kC64});
  Tensor received_ = empty(shapes_.received(), {.dtype = kC64});
  Tensor unit_ = zeros({shapes_.users, shapes_.users}, {.dtype = kC64});
};

void show(const char* what, std::uint64_t bytes) {
  std::printf("  %-34s %14s\n", what, format_count(bytes).c_str());
}

void show(const Need& need) {
  std::printf("needs, by the shapes:\n");
  show("channels", need.channel);
  show("sent", need.sent);
  show("received", need.received);
  show("while drawing symbols", need.draw());
  show("while transmitting", need.transmit());
  show("while detecting", need.detect());
  show("while comparing", need.compare());
  show("total", need.total());
}

void simulate(const Shapes& shapes, const Need& need, double share) {
  memory::Allocator& memory = allocator("cpu");
  memory.set_limit(static_cast<std::uint64_t>(static_cast<double>(need.total()) * share));
  // All at once but the page of single numbers.
  const auto taken = memory.reserve(need.total() - 2_MiB);
  if (!taken) throw memory::OutOfMemory(taken.error().report);
  manual_seed(1);
  Simulation simulation(shapes);
  for (const double snr_db : {-16.0, -12.0, -8.0}) {
    const double errors = simulation.run_batch(std::pow(10, -snr_db / 10));
    std::printf("SNR %5.1f dB: bit error rate %.5f, reserved %s\n",
                snr_db,
                errors,
                format_count(memory_reserved("cpu")).c_str());
  }
  const memory::Statistics statistics = memory.statistics();
  std::printf("measured:\n");
  show("asked for at the peak", static_cast<std::uint64_t>(statistics.requested_bytes.all.peak));
  show("reserved at the peak", static_cast<std::uint64_t>(statistics.reserved_bytes.all.peak));
}

}  // namespace

int main(int argc, char** argv) {
  set_device("cpu");
  const double share = argc > 1 ? std::atof(argv[1]) : 1.01;
  Shapes shapes;
  if (argc > 2) shapes.batch = std::atol(argv[2]);
  const Need need(shapes);
  show(need);
  try {
    simulate(shapes, need, share);
  } catch (const memory::OutOfMemory& error) {
    std::printf("refused: %s\n", error.what());
    return 1;
  }
}
