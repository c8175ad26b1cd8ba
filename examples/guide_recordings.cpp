// How do I record what an allocator does, and read a recording in a program of mine?
//
// The snippets of docs/guide/recording.md and docs/guide/traces.md, so that they compile and run.
// They write into the folder that is named, or into this one.
#include <cstdio>
#include <filesystem>

#include <headroom/analysis/groups.h>
#include <headroom/memory.h>
#include <headroom/trace.h>

using namespace headroom;

namespace {

void train() { const memory::Buffer weights(allocator(), 4_MiB); }

void keep_the_last_events() {
  record_memory_history({.stacks = {.mode = trace::StackMode::kOnAllocation}});
  train();
  dump_snapshot("run.pickle.zst");  // PyTorch's format
  dump_snapshot("run.hrt");         // ours, a few bytes per event
  stop_recording();
}

void keep_all_events() {
  record_memory_history({.file = "all.hrt"});
  train();
  stop_recording();
}

void keep_the_newest_events() {
  record_memory_history({.file = "last.hrt", .max_file_bytes = 1_GiB});
  train();
  stop_recording();
}

void record_an_allocator_of_ones_own() {
  auto host = device::CpuDevice::create({.capacity_bytes = 64_MiB});
  memory::PagedAllocator cache(*host);
  trace::History history;
  history.attach(cache);
  { const memory::Buffer block(cache, 1_MiB); }
  const trace::Trace recorded = history.snapshot();
  std::printf("%zu events of an allocator of our own\n", recorded.event_count());
  history.stop().value();
}

void say_what_memory_is_for(std::uint64_t i) {
  const memory::IterationScope iteration(i);
  const memory::PhaseScope phase(memory::Phase::kForward);
  const memory::AnnotationScope layer("layer3");
  const memory::CategoryScope category(memory::Category::kActivation);
  train();
}

int read() {
  const auto file = trace::read_trace("run.hrt");  // or a PyTorch snapshot, plain or .zst
  if (!file) {
    std::fprintf(stderr, "%s\n", to_string(file.error()).c_str());
    return 1;
  }
  const analysis::TraceIndex index(file->trace, file->trace.devices[0]);
  const analysis::Peak& peak = index.peaks().allocated;
  for (const analysis::Group& group :
       group_blocks(index, index.allocated_at(peak.position), analysis::GroupBy::kCategory)) {
    std::printf("%s  %s\n", format_bytes(group.bytes).c_str(), group.label.c_str());
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) std::filesystem::current_path(arguments[1]);
  set_device("cpu");
  keep_the_last_events();
  keep_all_events();
  keep_the_newest_events();
  record_an_allocator_of_ones_own();
  say_what_memory_is_for(0);
  return read();
}
