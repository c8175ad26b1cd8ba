#include "tests/support/async_log.h"

#include <string>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::testing {

using device::DeviceResult;
using device::StreamId;

void AsyncLog::replay() const {
  if (unrepeatable_ != nullptr) throw Error(std::string("AsyncLog: it has ") + unrepeatable_);
  for (const Work& work : works_) {
    if (!work()) throw Error("AsyncLog: the device refused what it took before");
  }
}

void AsyncLog::add(StreamId stream, Work work) {
  if (works_.empty()) stream_ = stream;
  if (stream != stream_) add_unrepeatable("work on a second stream");
  works_.push_back(std::move(work));
}

void AsyncLog::add_launch(StreamId stream, Work work) {
  ++launches_;
  add(stream, std::move(work));
}

void AsyncLog::add_upload(StreamId stream,
                          const void* from,
                          std::uint64_t size_bytes,
                          std::function<DeviceResult<void>(const Bytes& bytes)> copy) {
  const auto* const bytes = static_cast<const std::byte*>(from);
  const Bytes& own = uploads_.emplace_back(bytes, bytes + size_bytes);  // a deque keeps its place
  add(stream, [&own, copy = std::move(copy)] { return copy(own); });
}

}  // namespace headroom::testing
