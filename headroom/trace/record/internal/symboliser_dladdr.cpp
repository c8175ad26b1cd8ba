#include <dlfcn.h>

#include "headroom/trace/record/internal/symboliser.h"

#if __has_include(<link.h>)
#include <link.h>
#endif

namespace headroom::trace::internal {

class Symboliser::Impl {};

Symboliser::Symboliser() = default;
Symboliser::~Symboliser() = default;

std::vector<Symbol> Symboliser::find(const RawFrame& raw) {
#if __has_include(<link.h>)
  // Only what is loaded here can be asked for.
  void* handle = dlopen(raw.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) handle = dlopen(nullptr, RTLD_LAZY);
  const link_map* map = nullptr;
  Modules modules;
  Dl_info info{};
  std::vector<Symbol> found;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) {
    const std::uint64_t address = map->l_addr + raw.offset;
    const Module* module = modules.find(address);
    if (module != nullptr && module->build_id == raw.build_id && module->path == raw.path &&
        dladdr(reinterpret_cast<void*>(address), &info) != 0 && info.dli_sname != nullptr) {
      found.push_back({.function = demangle(info.dli_sname), .file = raw.path});
    }
  }
  dlclose(handle);
  return found;
#else
  (void)raw;
  return {};
#endif
}

}  // namespace headroom::trace::internal
