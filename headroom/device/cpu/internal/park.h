// Parking: no stream thread may run while the statics of the program are destroyed.
//
// An exit hook, installed with the first stream, asks all stream threads to finish the task they
// run and then stop for good. What was still queued never runs; calls that would wait for it
// answer kShutDown.
#pragma once

namespace headroom::device::internal {

class CpuStream;

// Around the life of a stream's thread, in this order: started by the thread that makes it, ended
// by itself as its last act, or by the maker if it could not be made.
void thread_started(CpuStream& stream);
void thread_ended(CpuStream& stream) noexcept;

// The calling stream thread counts as stopped and stays here.
[[noreturn]] void park_forever() noexcept;

}  // namespace headroom::device::internal
