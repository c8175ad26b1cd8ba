#include "headroom/tensor/region.h"

#include <string>

#include "headroom/base/error.h"
#include "headroom/tensor/tensor.h"

namespace headroom::tensor {

bool Region::made(const Tensor& tensor) noexcept {
  return tensor.storage().number() >= current_.first_storage;
}

RegionScope::RegionScope(bool is_again) noexcept : outer_(Region::current_) {
  Region::current_ = {.is_guarded = true,
                      // A region that begins inside a second run is part of it.
                      .is_again = is_again || outer_.is_again,
                      .first_storage = Storage::next_number()};
}

void check_region_write(const char* name, const Tensor& self) {
  if (Region::made(self)) return;
  throw InvalidArgument("checkpoint: " + std::string(name) + " writes to " +
                        std::string(to_string(self.dtype())) + to_string(self.shape()) +
                        ", which was made outside of the region: computing it again would write "
                        "twice; write to a clone, or do it outside");
}

}  // namespace headroom::tensor
