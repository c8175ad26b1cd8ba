// `headroom doctor`, in steps that tests can take one by one: examine recordings or read a pasted
// message, then draw what was found or write it as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/diagnose/doctor.h"
#include "headroom/diagnose/oom_message.h"
#include "headroom/memory/account.h"
#include "headroom/trace/file.h"

#include "cli/command.h"

namespace headroom::cli {

struct DoctorQuestion {
  std::vector<std::string> paths{};  // or one `-`: a message on standard input
  diagnose::DoctorOptions options{};
};

struct Patient {
  std::string path{};
  std::string device{};
  std::uint64_t events = 0;
  std::uint64_t allocs = 0;
  bool has_stacks = false;
  bool is_whole = true;  // the history starts with an empty device
  std::string settings{};
  diagnose::Diagnosis diagnosis{};
};

// Every device of the recording that has a history. Throws Error where none has.
[[nodiscard]] std::vector<Patient> examine(const trace::TraceFile& file,
                                           const std::string& path,
                                           const DoctorQuestion& question);

// The worst of them; of equal ones the first.
[[nodiscard]] const Patient& worst(const std::vector<Patient>& patients);

[[nodiscard]] std::string draw_doctor(const std::vector<Patient>& patients, const Context& context);
// Follows docs/format/doctor.schema.json, as does message_json.
[[nodiscard]] std::string doctor_json(const std::vector<Patient>& patients);

// What a message means in one sentence, and the remedies that exist for it.
[[nodiscard]] memory::Explanation message_explanation(const diagnose::OomMessage& message);
[[nodiscard]] std::string draw_messages(const diagnose::OomLog& log, const Context& context);
// The last message, and all of them in short.
[[nodiscard]] std::string messages_json(const diagnose::OomLog& log);

}  // namespace headroom::cli
