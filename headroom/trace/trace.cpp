#include "headroom/trace/trace.h"

#include "headroom/trace/internal/big_vector.h"

namespace headroom::trace {
namespace {

template <class T>
void reserve_column(std::vector<T>& column, std::size_t count) {
  column.reserve(count);
  internal::wish_for_huge_pages(column.data(), column.capacity() * sizeof(T));
}

}  // namespace

void Events::reserve(std::size_t count) {
  reserve_column(actions_, count);
  reserve_column(addresses_, count);
  reserve_column(sizes_, count);
  reserve_column(stream_ids_, count);
  reserve_column(times_, count);
  reserve_column(stacks_, count);
  reserve_column(details_, count);
}

void Events::push_back(const Entry& entry) {
  actions_.push_back(entry.action);
  addresses_.push_back(entry.address);
  sizes_.push_back(entry.size_bytes);
  times_.push_back(entry.time_us);
  stacks_.push_back(entry.stack);
  details_.push_back(entry.details);
  // Programs have few streams, and use the same one many times in a row.
  if (!stream_ids_.empty() && streams_[stream_ids_.back()] == entry.stream) {
    stream_ids_.push_back(stream_ids_.back());
    return;
  }
  const auto [found, is_new] =
      stream_index_.try_emplace(entry.stream, static_cast<std::uint32_t>(streams_.size()));
  if (is_new) streams_.push_back(entry.stream);
  stream_ids_.push_back(found->second);
}

Entry Events::operator[](std::size_t i) const {
  return {.action = actions_[i],
          .address = addresses_[i],
          .size_bytes = sizes_[i],
          .stream = stream(i),
          .time_us = times_[i],
          .stack = stacks_[i],
          .details = details_[i]};
}

DetailsTable::DetailsTable() { intern({}); }

DetailsId DetailsTable::intern(const Details& details) {
  const auto [at, is_new] = ids_.try_emplace(details, size());
  if (is_new) rows_.push_back(details);
  return at->second;
}

std::string Trace::settings_string() const {
  const Value* found = settings ? settings->find("PYTORCH_CUDA_ALLOC_CONF") : nullptr;
  const auto* text = found != nullptr ? std::get_if<std::string>(&found->data) : nullptr;
  return text != nullptr ? *text : std::string{};
}

std::size_t Trace::event_count() const noexcept {
  std::size_t count = 0;
  for (const DeviceTrace& device : devices) count += device.events.size();
  return count;
}

}  // namespace headroom::trace
