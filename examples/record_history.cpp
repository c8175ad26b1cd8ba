// Which part of my training step takes the memory?
//
// Records a loop that looks like training, writes the recording to a file, and reads from it what
// was live at the peak, by where in the program it was asked for.
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <headroom/memory.h>
#include <headroom/trace.h>

using namespace headroom;
using memory::Array;
using memory::Category;

namespace {

using Tensors = std::vector<Array<float>>;

Array<float> tensor(Category category, std::size_t floats) {
  const memory::CategoryScope scope(category);
  return {allocator(), floats};
}

void step(std::uint64_t number, const Tensors& weights) {
  const memory::IterationScope iteration(number);
  Tensors activations;
  {
    const memory::PhaseScope phase(memory::Phase::kForward);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const memory::AnnotationScope layer("layer" + std::to_string(i));
      activations.push_back(tensor(Category::kActivation, (i + 1) * 262'144));
    }
  }
  const memory::PhaseScope phase(memory::Phase::kBackward);
  for (std::size_t i = weights.size(); i-- > 0;) {
    const Array<float> gradient = tensor(Category::kGradient, 262'144);
    activations[i].reset();
  }
}

// Bytes live at the peak, by annotation path.
std::map<std::string, std::uint64_t> live_at_peak(const trace::Trace& trace) {
  std::map<std::uint64_t, trace::Entry> live;
  std::map<std::uint64_t, trace::Entry> peak;
  std::uint64_t now = 0;
  std::uint64_t most = 0;
  const trace::Events& events = trace.devices.at(0).events;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const trace::Entry event = events[i];
    if (event.action == memory::Action::kAlloc) {
      live[event.address] = event;
      now += event.size_bytes;
      if (now <= most) continue;
      most = now;
      peak = live;
    } else if (event.action == memory::Action::kFreeCompleted) {
      now -= event.size_bytes;
      live.erase(event.address);
    }
  }
  std::map<std::string, std::uint64_t> by_path;
  for (const auto& [address, event] : peak) {
    const auto path = trace.details[event.details].user_metadata;
    by_path[path ? std::string(trace.strings[*path]) : "(none)"] += event.size_bytes;
  }
  return by_path;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string path = count > 1 ? arguments[1] : "record_history.hrt";
  set_device("cpu");
  record_memory_history();
  Tensors weights;
  {
    const memory::AnnotationScope scope("weights");
    for (int i = 0; i < 4; ++i) weights.push_back(tensor(Category::kParameter, 262'144));
  }
  for (std::uint64_t i = 0; i < 3; ++i) step(i, weights);
  std::filesystem::remove(path);
  dump_snapshot(path);
  stop_recording();

  const auto read = trace::read_trace(path);
  if (!read) {
    std::fprintf(stderr, "%s\n", to_string(read.error()).c_str());
    return 1;
  }
  std::printf("%zu events and %zu marks in %s\n",
              read->trace.event_count(),
              read->trace.annotations.size(),
              std::filesystem::path(path).filename().c_str());
  std::printf("live at the peak:\n");
  for (const auto& [site, bytes] : live_at_peak(read->trace)) {
    std::printf("  %-20s %s\n", site.c_str(), format_bytes(bytes).c_str());
  }
}
