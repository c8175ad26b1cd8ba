#include <cstdlib>
#include <dwarf.h>
#include <filesystem>
#include <map>
#include <span>

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include "headroom/trace/record/internal/symboliser.h"

namespace headroom::trace::internal {
namespace {

struct EndSession {
  void operator()(Dwfl* session) const noexcept { dwfl_end(session); }
};
struct FreeScopes {
  void operator()(Dwarf_Die* scopes) const noexcept { std::free(scopes); }
};

char* no_debuginfo_path = nullptr;

const Dwfl_Callbacks kCallbacks{.find_elf = dwfl_build_id_find_elf,
                                .find_debuginfo = dwfl_standard_find_debuginfo,
                                .section_address = dwfl_offline_section_address,
                                .debuginfo_path = &no_debuginfo_path};

std::string hex(std::span<const unsigned char> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) {
    out += kDigits[byte >> 4U];
    out += kDigits[byte & 15U];
  }
  return out;
}

// One module's file, opened to be asked.
class OpenModule {
 public:
  explicit OpenModule(const RawFrame& raw) : session_(dwfl_begin(&kCallbacks)) {
    // The path is what a recording says: it may name a pipe, which would be waited for.
    std::error_code error;
    if (session_ == nullptr || !std::filesystem::is_regular_file(raw.path, error)) return;
    dwfl_report_begin(session_.get());
    module_ = dwfl_report_offline(session_.get(), raw.path.c_str(), raw.path.c_str(), -1);
    dwfl_report_end(session_.get(), nullptr, nullptr);
    if (module_ == nullptr) return;
    GElf_Addr bias = 0;
    if (dwfl_module_getelf(module_, &bias) == nullptr || build_id() != raw.build_id) {
      module_ = nullptr;  // the file was built anew since
      return;
    }
    bias_ = bias;
  }

  [[nodiscard]] std::vector<Symbol> find(std::uint64_t offset) const {
    if (module_ == nullptr) return {};
    const Dwarf_Addr address = offset + bias_;
    std::vector<Symbol> found = with_inlined(address);
    if (!found.empty()) return found;
    const char* name = dwfl_module_addrname(module_, address);
    if (name == nullptr) return {};
    const Place place = line_at(address);
    return {{.function = demangle(name), .file = place.file, .line = place.line}};
  }

 private:
  struct Place {
    std::string file{};
    std::int64_t line = 0;
  };

  [[nodiscard]] std::string build_id() const {
    const unsigned char* bits = nullptr;
    GElf_Addr where = 0;
    const int size = dwfl_module_build_id(module_, &bits, &where);
    return size > 0 ? hex({bits, static_cast<std::size_t>(size)}) : "";
  }

  [[nodiscard]] Place line_at(Dwarf_Addr address) const {
    Dwfl_Line* line = dwfl_module_getsrc(module_, address);
    if (line == nullptr) return {};
    int number = 0;
    const char* file = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
    return {.file = file == nullptr ? "" : file, .line = number};
  }

  // Where the function that `inlined` describes was called.
  static Place call_of(Dwarf_Die& inlined, Dwarf_Die& unit) {
    Place place;
    Dwarf_Attribute attribute;
    Dwarf_Word number = 0;
    if (dwarf_formudata(dwarf_attr(&inlined, DW_AT_call_line, &attribute), &number) == 0) {
      place.line = static_cast<std::int64_t>(number);
    }
    Dwarf_Files* files = nullptr;
    if (dwarf_formudata(dwarf_attr(&inlined, DW_AT_call_file, &attribute), &number) == 0 &&
        dwarf_getsrcfiles(&unit, &files, nullptr) == 0) {
      if (const char* file = dwarf_filesrc(files, number, nullptr, nullptr)) place.file = file;
    }
    return place;
  }

  static std::string name_of(Dwarf_Die& function) {
    Dwarf_Attribute attribute;
    Dwarf_Attribute* found = dwarf_attr_integrate(&function, DW_AT_linkage_name, &attribute);
    if (const char* mangled = dwarf_formstring(found)) return demangle(mangled);
    const char* plain = dwarf_diename(&function);
    return plain == nullptr ? "" : plain;
  }

  [[nodiscard]] std::vector<Symbol> with_inlined(Dwarf_Addr address) const {
    Dwarf_Addr bias = 0;
    Dwarf_Die* unit = dwfl_module_addrdie(module_, address, &bias);
    if (unit == nullptr) return {};
    Dwarf_Die* list = nullptr;
    const int count = dwarf_getscopes(unit, address - bias, &list);
    if (count <= 0) return {};
    const std::unique_ptr<Dwarf_Die, FreeScopes> scopes(list);
    std::vector<Symbol> found;
    Place place = line_at(address);
    for (Dwarf_Die& scope : std::span(list, static_cast<std::size_t>(count))) {
      const int tag = dwarf_tag(&scope);
      if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
      found.push_back({.function = name_of(scope), .file = place.file, .line = place.line});
      if (tag == DW_TAG_subprogram) break;
      place = call_of(scope, *unit);
    }
    // The symbol table spells names of C and of local functions in full.
    if (!found.empty()) {
      if (const char* name = dwfl_module_addrname(module_, address)) {
        found.back().function = demangle(name);
      }
    }
    return found;
  }

  std::unique_ptr<Dwfl, EndSession> session_;
  Dwfl_Module* module_ = nullptr;
  Dwarf_Addr bias_ = 0;
};

}  // namespace

class Symboliser::Impl {
 public:
  std::vector<Symbol> find(const RawFrame& raw) {
    std::unique_ptr<OpenModule>& module = modules_[{raw.path, raw.build_id}];
    if (module == nullptr) module = std::make_unique<OpenModule>(raw);
    return module->find(raw.offset);
  }

 private:
  std::map<std::pair<std::string, std::string>, std::unique_ptr<OpenModule>> modules_;
};

Symboliser::Symboliser() : impl_(std::make_unique<Impl>()) {}
Symboliser::~Symboliser() = default;

std::vector<Symbol> Symboliser::find(const RawFrame& raw) { return impl_->find(raw); }

}  // namespace headroom::trace::internal
