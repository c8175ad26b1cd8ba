#include "headroom/trace/record/internal/modules.h"

#include <filesystem>

#if __has_include(<link.h>)
#include <link.h>
#define HEADROOM_HAS_LINK_MAP 1
#endif

namespace headroom::trace::internal {

#if defined(HEADROOM_HAS_LINK_MAP)
namespace {

// One segment of a module's notes: name, description and kind, each padded to four bytes.
std::string build_id_in(const char* at, std::size_t size) {
  constexpr std::size_t kHeader = sizeof(ElfW(Nhdr));
  const auto padded = [](std::size_t n) { return (n + 3) & ~std::size_t{3}; };
  while (size >= kHeader) {
    const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
    const std::size_t name = padded(note->n_namesz);
    const std::size_t total = kHeader + name + padded(note->n_descsz);
    if (total > size) break;
    if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4) {
      std::string hex;
      for (std::size_t i = 0; i < note->n_descsz; ++i) {
        constexpr const char* kDigits = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(at[kHeader + name + i]);
        hex += kDigits[byte >> 4U];
        hex += kDigits[byte & 15U];
      }
      return hex;
    }
    at += total;
    size -= total;
  }
  return "";
}

std::string path_of(const dl_phdr_info& info) {
  if (info.dlpi_name != nullptr && info.dlpi_name[0] != '\0') return info.dlpi_name;
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

struct Loaded {
  Module module;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> code{};
};

struct Listing {
  std::vector<Loaded> modules;
  std::uint64_t loads = 0;
};

int list_one(dl_phdr_info* info, std::size_t /*size*/, void* state) {
  auto& listing = *static_cast<Listing*>(state);
  Loaded loaded{.module = {.path = path_of(*info), .base = info->dlpi_addr}};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const std::uint64_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0) {
      loaded.code.emplace_back(begin, begin + part.p_memsz);
    } else if (part.p_type == PT_NOTE && loaded.module.build_id.empty()) {
      loaded.module.build_id = build_id_in(reinterpret_cast<const char*>(begin), part.p_memsz);
    }
  }
  listing.modules.push_back(std::move(loaded));
  return 0;
}

int count_loads(dl_phdr_info* info, std::size_t /*size*/, void* state) {
  *static_cast<std::uint64_t*>(state) = info->dlpi_adds;
  return 1;
}

}  // namespace

void Modules::refresh() {
  Listing listing;
  dl_iterate_phdr(count_loads, &listing.loads);
  if (listing.loads == loads_seen_) return;
  loads_seen_ = listing.loads;
  dl_iterate_phdr(list_one, &listing);
  for (Loaded& loaded : listing.modules) {
    const auto number = static_cast<std::uint32_t>(modules_.size());
    for (const auto& [begin, end] : loaded.code) code_[begin] = {.end = end, .module = number};
    modules_.push_back(std::move(loaded.module));
  }
}
#else
void Modules::refresh() {}
#endif

const Module* Modules::look_up(std::uint64_t address) const {
  auto after = code_.upper_bound(address);
  if (after == code_.begin()) return nullptr;
  const Range& range = std::prev(after)->second;
  return address < range.end ? &modules_[range.module] : nullptr;
}

const Module* Modules::find(std::uint64_t address) {
  if (const Module* known = look_up(address)) return known;
  refresh();
  return look_up(address);
}

}  // namespace headroom::trace::internal
