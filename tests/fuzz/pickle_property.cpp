#include "tests/fuzz/pickle_property.h"

#include <algorithm>

#include "headroom/trace/pickle/pickle_reader.h"
#include "headroom/trace/pickle/pickle_writer.h"

namespace headroom::trace::testing {

std::optional<std::string> broken_pickle_property(std::span<const std::byte> bytes) {
  const auto trace = parse_pickle(bytes);

  // Zeros behind the end change nothing, but they let the fast half of the reader come further.
  std::string padded(bytes.size() + 200, '\0');
  std::ranges::copy(std::as_bytes(bytes), std::as_writable_bytes(std::span(padded)).begin());
  const auto trace_of_padded = parse_pickle(std::as_bytes(std::span(padded)));
  if (!trace) return std::nullopt;
  if (!trace_of_padded) return "with zeros behind it: " + to_string(trace_of_padded.error());

  const auto first = write_pickle(*trace);
  if (!first) return std::nullopt;  // ranks, devices: what a snapshot has no place for
  if (write_pickle(*trace_of_padded).value_or("") != *first) return "zeros behind it change it";
  const auto again = parse_pickle(std::as_bytes(std::span(*first)));
  if (!again) return "what was written is not read: " + to_string(again.error());
  const auto second = write_pickle(*again);
  if (!second) return "written once, and not again: " + to_string(second.error());
  if (*first != *second) return "what was written reads as something else";
  return std::nullopt;
}

}  // namespace headroom::trace::testing
