// `headroom doctor`: draws the diagnosis of recordings, or of a pasted message, or writes it as
// JSON.
#pragma once

#include <string>
#include <vector>

#include "headroom/diagnose/doctor.h"
#include "headroom/diagnose/oom_message.h"
#include "headroom/diagnose/recording.h"
#include "headroom/memory/account.h"

#include "cli/command.h"

namespace headroom::cli {

using diagnose::DeviceDiagnosis;

[[nodiscard]] std::string draw_doctor(const std::vector<DeviceDiagnosis>& devices,
                                      const Context& context);
// Follows docs/format/doctor.schema.json, as does message_json.
[[nodiscard]] std::string doctor_json(const std::vector<DeviceDiagnosis>& devices);

// The meaning of a message in one sentence, and the remedies that exist for it.
[[nodiscard]] memory::Explanation message_explanation(const diagnose::OomMessage& message);
[[nodiscard]] std::string draw_messages(const diagnose::OomLog& log, const Context& context);
// The last message, and all of them in short.
[[nodiscard]] std::string messages_json(const diagnose::OomLog& log);

}  // namespace headroom::cli
