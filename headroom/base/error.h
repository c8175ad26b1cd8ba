// The exceptions of headroom: `Error` is the root of all but memory::OutOfMemory, which is a
// std::bad_alloc. A message says what was asked, what was found, and what to try.
#pragma once

#include <stdexcept>
#include <string>

namespace headroom {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A caller passed something that can never work: a shape, an option, a device that does not exist.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

}  // namespace headroom
