// The words of a recording that an analysis speaks in, under its own name.
#pragma once

#include "headroom/trace/trace.h"

namespace headroom::analysis {

using memory::Action;
using memory::DeviceAddress;
using trace::Annotation;
using trace::Block;
using trace::Details;
using trace::DetailsId;
using trace::DeviceTrace;
using trace::Entry;
using trace::Events;
using trace::Frame;
using trace::Segment;
using trace::StackId;
using trace::StringId;
using trace::Trace;

}  // namespace headroom::analysis
