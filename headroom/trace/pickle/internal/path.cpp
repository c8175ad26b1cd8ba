#include "headroom/trace/pickle/internal/path.h"

#include "headroom/base/format_error.h"

namespace headroom::trace::internal {

std::string Path::text() const {
  if (parent_ == nullptr) return {};
  std::string out = parent_->text();
  if (name_.data() == nullptr) return out + "[" + std::to_string(index_) + "]";
  if (!out.empty()) out += '.';
  return out += excerpt(name_);
}

}  // namespace headroom::trace::internal
