#include "cli/doctor.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "headroom/base/bytes.h"
#include "headroom/replay/cards.h"
#include "headroom/replay/program.h"
#include "headroom/trace/device_name.h"

#include "cli/commands.h"
#include "cli/trace_input.h"

namespace headroom::cli {
namespace {

using report::Health;

struct DoctorWords {
  std::vector<std::string> paths{};
  std::string limit{};
  std::string card{};
  std::string version{};
  std::string max_peak{};
  std::string max_growth{};
};

std::optional<std::uint64_t> size_of(const std::string& text, std::string_view option) {
  if (text.empty()) return std::nullopt;
  const auto size = parse_bytes(text);
  if (!size) throw UsageError(fmt::format("{}: {}", option, size.error()));
  return *size;
}

DoctorQuestion question_of(const DoctorWords& typed) {
  DoctorQuestion question{.paths = typed.paths};
  question.options.limit_bytes = size_of(typed.limit, "--limit");
  question.options.max_peak_bytes = size_of(typed.max_peak, "--max-peak");
  question.options.max_growth_bytes = size_of(typed.max_growth, "--max-growth");
  if (!typed.card.empty()) {
    question.options.card_bytes = replay::parse_card(typed.card);
    if (!question.options.card_bytes) {
      throw UsageError(fmt::format("--card: '{}' is neither a size such as 24GiB nor one of {}",
                                   typed.card,
                                   replay::card_names()));
    }
  }
  if (!typed.version.empty()) {
    const auto version = memory::parse_pytorch_version(typed.version);
    if (!version) throw UsageError(fmt::format("--pytorch: {}", version.error()));
    question.choices.version = *version;
  }
  return question;
}

bool has_stacks(const trace::TraceIndex& index) {
  return std::ranges::any_of(index.lifetimes(), [&](const trace::Lifetime& block) {
    return !index.trace().stacks.frame_ids(block.stack).empty();
  });
}

std::string read_standard_input() {
  constexpr std::size_t kMost = std::size_t{64} << 20U;  // of a log
  std::string text;
  std::array<char, 65536> piece{};
  while (text.size() < kMost) {
    const std::size_t got = std::fread(piece.data(), 1, piece.size(), stdin);
    if (got == 0) break;
    text.append(piece.data(), got);
  }
  return text;
}

ExitCode run_message(const Context& context) {
  const auto message = memory::parse_pytorch_message(read_standard_input());
  if (!message) throw Error(fmt::format("standard input: {}", message.error()));
  context.print(context.is_json ? message_json(*message) : draw_message(*message, context));
  return ExitCode::kBadNews;
}

ExitCode run_traces(DoctorQuestion question, const Context& context) {
  question.choices.progress = [&](const std::string& line) { context.progress(line); };
  std::vector<Patient> patients;
  for (const std::string& path : question.paths) {
    const trace::TraceFile file = read_input(path, context);
    for (Patient& patient : examine(file, path, question)) patients.push_back(std::move(patient));
  }
  context.progress("");
  context.print(context.is_json ? doctor_json(patients) : draw_doctor(patients, context));
  const bool is_good = std::ranges::all_of(
      patients, [](const Patient& patient) { return patient.diagnosis.is_good(); });
  return is_good ? ExitCode::kDone : ExitCode::kBadNews;
}

ExitCode run(const DoctorWords& typed, const Context& context) {
  DoctorQuestion question = question_of(typed);
  const bool has_message = std::ranges::find(typed.paths, "-") != typed.paths.end();
  if (!has_message) return run_traces(std::move(question), context);
  if (typed.paths.size() > 1) throw UsageError("'-' reads a message and takes no traces beside it");
  return run_message(context);
}

RunFunction add_doctor(CLI::App& app) {
  auto typed = std::make_shared<DoctorWords>();
  constexpr const char* kGroup = "Options";
  app.add_option("trace",
                 typed->paths,
                 "recordings: PyTorch snapshots or .hrt, plain or .zst; or - to read a pasted "
                 "out-of-memory message")
      ->type_name("TRACE")
      ->required()
      ->group(kGroup);
  app.add_option("--limit", typed->limit, "what the allocator may reserve: would it have fitted?")
      ->type_name("SIZE")
      ->group(kGroup);
  app.add_option(
         "--card", typed->card, "the device's size, as 24GiB or h200, a100-40, rtx4090, ...")
      ->type_name("CARD")
      ->group(kGroup);
  app.add_option("--pytorch", typed->version, "the release that recorded, as 2.11; else inferred")
      ->type_name("VERSION")
      ->group(kGroup);
  app.add_option("--max-peak", typed->max_peak, "exit 3 when more than this was reserved")
      ->type_name("SIZE")
      ->group(kGroup);
  app.add_option("--max-growth",
                 typed->max_growth,
                 "exit 3 when a step adds more than this; less is no leak")
      ->type_name("SIZE")
      ->group(kGroup);
  return [typed](const Context& context) { return run(*typed, context); };
}

}  // namespace

std::vector<Patient> examine(const trace::TraceFile& file,
                             const std::string& path,
                             const DoctorQuestion& question) {
  const auto options = report::with_replay(question.options, question.choices);
  std::vector<Patient> out;
  for (const trace::DeviceTrace* device : replay::replayable(file.trace)) {
    const trace::TraceIndex index(file.trace, *device);
    out.push_back({.path = path,
                   .device = device_name(file.trace, *device),
                   .events = device->events.size(),
                   .allocs = index.count(trace::Action::kAlloc),
                   .has_stacks = has_stacks(index),
                   .is_whole = index.start().is_empty(),
                   .settings = file.trace.settings_string(),
                   .diagnosis = report::diagnose(index, options)});
  }
  if (out.empty()) {
    throw Error(fmt::format(
        "{}: has no history to look at; call torch.cuda.memory._record_memory_history() before the "
        "first allocation",
        path));
  }
  return out;
}

const Patient& worst(const std::vector<Patient>& patients) {
  return *std::ranges::max_element(patients, {}, [](const Patient& patient) {
    return std::pair(patient.diagnosis.health, patient.diagnosis.is_over_bounds);
  });
}

Command doctor_command() {
  return {
      .name = "doctor",
      .group = "Start here",
      .summary = "what is wrong with a program's memory, and what to do about it",
      .examples =
          "doctor snapshot.pickle  the verdict, where the bytes are, settings proved by replay\n"
          "snapshot.pickle  the same\n"
          "doctor snapshot.pickle --card rtx4090  would it have fitted?\n"
          "doctor - < log.txt  explains a pasted 'CUDA out of memory' message\n"
          "doctor run.pickle --max-peak 20GiB --max-growth 0  for continuous integration",
      .add = add_doctor};
}

}  // namespace headroom::cli
