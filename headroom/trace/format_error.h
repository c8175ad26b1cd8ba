// FormatError, which base/format_error.h has, by its name here.
#pragma once

#include "headroom/base/format_error.h"

namespace headroom::trace {

using headroom::FormatError;
template <class T>
using FormatResult = headroom::FormatResult<T>;

}  // namespace headroom::trace
