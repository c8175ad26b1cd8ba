// A diagnosis in sentences.
#pragma once

#include <string>
#include <string_view>

#include "headroom/diagnose/doctor.h"

namespace headroom::report {

// One sentence or two: the verdict, and what a card or limit that was asked about would mean.
[[nodiscard]] std::string summary_text(const diagnose::Diagnosis& diagnosis);

// The advice; a line for the shell where there is one.
[[nodiscard]] std::string remedy_text(const diagnose::Diagnosis& diagnosis,
                                      const diagnose::Finding& finding);
// Why, and what it brings.
[[nodiscard]] std::string reason_text(const diagnose::Diagnosis& diagnosis,
                                      const diagnose::Finding& finding);

// `export PYTORCH_CUDA_ALLOC_CONF=...`
[[nodiscard]] std::string export_line(std::string_view conf);

}  // namespace headroom::report
