#include "headroom/trace/internal/sniff.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace headroom::trace::internal {
namespace {

using std::string_view_literals::operator""sv;

struct Beginning {
  std::string_view bytes;
  std::string_view what;
};

constexpr std::array kBeginnings{
    Beginning{"PK\x03\x04"sv,
              "it is a zip archive, perhaps a checkpoint of torch.save: a recording comes from "
              "torch.cuda.memory._dump_snapshot"},
    Beginning{"\x1f\x8b"sv, "it is packed with gzip: unpack it with gunzip first"},
    Beginning{"\xfd\x37zXZ"sv, "it is packed with xz: unpack it with unxz first"},
    Beginning{"BZh"sv, "it is packed with bzip2: unpack it with bunzip2 first"},
    Beginning{"\x7f"
              "ELF"sv,
              "it is a program, not a recording"},
    Beginning{"SQLite format 3"sv, "it is an SQLite database, perhaps of Nsight: not a recording"},
    Beginning{"<"sv,
              "it is HTML or XML: give the .pickle that the page was made from, not the page"},
    Beginning{"{"sv, "it is JSON: give the .pickle that torch.cuda.memory._dump_snapshot wrote"},
    Beginning{"["sv, "it is JSON: give the .pickle that torch.cuda.memory._dump_snapshot wrote"},
    Beginning{"(dp"sv, "it is a pickle of protocol 0: save it with protocol 2 to 5"},
    Beginning{"(lp"sv, "it is a pickle of protocol 0: save it with protocol 2 to 5"},
    Beginning{"}q"sv, "it is a pickle of protocol 1: save it with protocol 2 to 5"},
    Beginning{"]q"sv, "it is a pickle of protocol 1: save it with protocol 2 to 5"},
};

std::string_view as_text(std::span<const std::byte> bytes) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes seen as text
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_printable(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isprint(byte) != 0 || std::isspace(byte) != 0 || byte >= 0x80;
}

std::string_view without_space(std::string_view text) {
  const auto first = std::ranges::find_if_not(
      text, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
  return text.substr(static_cast<std::size_t>(first - text.begin()));
}

}  // namespace

Content content_of(std::span<const std::byte> bytes) noexcept {
  const std::string_view text = as_text(bytes);
  if (text.starts_with("\x89HRT")) return Content::kHrt;
  const bool is_pickle = text.size() >= 2 && text[0] == '\x80' && text[1] >= 2 && text[1] < 32;
  return is_pickle ? Content::kPickle : Content::kOther;
}

std::string describe_other(std::span<const std::byte> bytes) {
  if (bytes.empty()) return "it is empty: the recording was never written, or the disk was full";
  const std::string_view text = as_text(bytes.first(std::min<std::size_t>(bytes.size(), 512)));
  for (const Beginning& beginning : kBeginnings) {
    if (text.starts_with(beginning.bytes) || without_space(text).starts_with(beginning.bytes)) {
      return std::string(beginning.what);
    }
  }
  if (std::ranges::all_of(text, is_printable)) {
    return "it is a text; a recording is a PyTorch snapshot (.pickle) or a .hrt file, plain or "
           ".zst";
  }
  return "it does not begin like a PyTorch snapshot (.pickle) or .hrt, plain or .zst: is it a "
         "recording?";
}

}  // namespace headroom::trace::internal
