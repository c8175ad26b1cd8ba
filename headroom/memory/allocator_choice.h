// Which allocator, with which settings, as one line of text:
//
//   ""                                   PagedAllocator, the default
//   "page_mb:2,cushion:0.01"             with settings of its own
//   "backend:native"                     CachingAllocator, PyTorch's decisions, factory settings
//   "expandable_segments:True"           CachingAllocator: only PyTorch's has this setting
//
// A backend that is named wins. Without one, a setting that only PyTorch's allocator has means that
// one, and everything else means the paged allocator.
//
//   auto choice = parse_choice("backend:paged");
//   if (!choice) complain(choice.error());
//   const auto allocator = make_allocator(device, *choice);
//
// An allocator says what it is as a value of this type too (Allocator::settings).
//
// plan, replay, tune, doctor and train all mean this type, and command lines have names for it:
//
//   paged                  PagedAllocator; paged:KEY=VALUE,... with settings of its own
//   pytorch:default        CachingAllocator, factory settings; so is pytorch, which to replay is
//                          what was recorded
//   pytorch:CONF           with exactly CONF, as in PYTORCH_CUDA_ALLOC_CONF
//   cudaMallocAsync        the driver's own pool, of which replay has a model
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/result.h"
#include "headroom/memory/allocator.h"
#include "headroom/memory/config.h"
#include "headroom/memory/paged/paged_options.h"

namespace headroom::memory {

enum class AllocatorKind : std::uint8_t { kPaged, kCaching, kDriverPool };

// `paged`, `pytorch` or `cudaMallocAsync`.
[[nodiscard]] std::string_view to_string(AllocatorKind kind) noexcept;

struct AllocatorChoice {
  AllocatorConfig config{};
  // A PagedAllocator: of `config` only memory_fraction and `pinned` then matter. Without a value, a
  // CachingAllocator.
  std::optional<PagedOptions> paged = PagedOptions{};
  // Nobody named a backend: a device without virtual memory gets a CachingAllocator.
  bool is_default = true;
  // Whose decisions a CachingAllocator makes, and how its settings are read. No text names it.
  PyTorchVersion version{};
  std::vector<std::string> warnings{};

  [[nodiscard]] AllocatorKind kind() const noexcept;
  // The same allocator with the same settings, however they were written.
  friend bool operator==(const AllocatorChoice& a, const AllocatorChoice& b);
};

// Strictly. The error says what is wrong, and what there is.
[[nodiscard]] Result<AllocatorChoice, std::string> parse_choice(std::string_view text);
// `base` with the changes of the text. The backend of a base that was not the default stays.
[[nodiscard]] Result<AllocatorChoice, std::string> parse_choice(std::string_view text,
                                                                const AllocatorChoice& base);

// The settings of a PagedAllocator alone, each `key:value` or `key=value`:
//   page_mb, large_page_mb, large_from_mb   the sizes of PagedOptions, in MiB
//   cushion, cushion_mb                     a fraction of the peak, and MiB
//   widest_cushion                          what it may widen to; without, a given one stays
//   magazines                               0 or 1
[[nodiscard]] Result<PagedOptions, std::string> parse_paged_options(std::string_view text);

// By the names of the command line. CONF is read as the newest release does; choice.config.text has
// it for an older one. The error says what is wrong, and what there is.
[[nodiscard]] Result<AllocatorChoice, std::string> parse_choice_name(std::string_view name);
// The name that reads back as an equal choice: of a PagedAllocator's settings those that text can
// name.
[[nodiscard]] std::string to_string(const AllocatorChoice& choice);

// PyTorch's variables that are set, in the order in which PyTorch looks at them.
[[nodiscard]] std::vector<std::string> pytorch_variables_in_environment();

enum class PyTorchVariables : std::uint8_t { kRead, kIgnore };

// HEADROOM_ALLOC_CONF by the rules above; else PyTorch's variables as config_from_environment()
// reads them, by the same rules; else, or where those are ignored, the default.
[[nodiscard]] Result<AllocatorChoice, std::string> choice_from_environment(
    PyTorchVariables pytorch = PyTorchVariables::kRead);

// Throws InvalidArgument as the allocators' constructors do.
[[nodiscard]] std::unique_ptr<Allocator> make_allocator(device::Device& device,
                                                        const AllocatorChoice& choice = {});

}  // namespace headroom::memory
