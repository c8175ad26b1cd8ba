#include "headroom/device/cuda/internal/kernels.h"

namespace headroom::device::internal {

// For compute capability 7.0 and up. The order of the links is the one of the cpu device's
// measurement: line i leads to a * i + c modulo the number of lines, a power of two, which visits
// every line (Hull and Dobell). A sum that nobody needs is stored if it has one value in 2^32, so
// that the loads are not optimised away.
const char* const kCudaKernels = R"ptx(
.version 6.4
.target sm_70
.address_size 64

.visible .entry link(.param .u64 base_, .param .u64 lines_)
{
  .reg .pred %done;
  .reg .u32 %a, %b, %c;
  .reg .u64 %base, %lines, %mask, %i, %step, %next, %at;
  ld.param.u64 %base, [base_];
  ld.param.u64 %lines, [lines_];
  sub.u64 %mask, %lines, 1;
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %c, %tid.x;
  mad.lo.u32 %a, %a, %b, %c;
  cvt.u64.u32 %i, %a;
  mov.u32 %c, %nctaid.x;
  mul.lo.u32 %b, %b, %c;
  cvt.u64.u32 %step, %b;
LOOP:
  setp.ge.u64 %done, %i, %lines;
  @%done ret;
  mad.lo.u64 %next, %i, 0x5851F42D4C957F2D, 0x14057B7EF767814F;
  and.b64 %next, %next, %mask;
  shl.b64 %next, %next, 7;
  add.u64 %next, %next, %base;
  shl.b64 %at, %i, 7;
  add.u64 %at, %at, %base;
  st.global.u64 [%at], %next;
  add.u64 %i, %i, %step;
  bra LOOP;
}

.visible .entry chase(.param .u64 cursor_, .param .u32 steps_)
{
  .reg .pred %more;
  .reg .u32 %left;
  .reg .u64 %at, %cursor;
  ld.param.u64 %cursor, [cursor_];
  ld.param.u32 %left, [steps_];
  ld.global.u64 %at, [%cursor];
LOOP:
  ld.global.cg.u64 %at, [%at];
  sub.u32 %left, %left, 1;
  setp.ne.u32 %more, %left, 0;
  @%more bra LOOP;
  st.global.u64 [%cursor], %at;
  ret;
}

.visible .entry read(.param .u64 base_, .param .u64 size_, .param .u32 rounds_, .param .u64 out_)
{
  .reg .pred %p;
  .reg .u32 %a, %b, %c, %left, %sum, %v<16>;
  .reg .u64 %base, %end, %size, %at, %first, %step, %out, %q1, %q2, %q3;
  ld.param.u64 %base, [base_];
  ld.param.u64 %size, [size_];
  ld.param.u32 %left, [rounds_];
  ld.param.u64 %out, [out_];
  add.u64 %end, %base, %size;
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %c, %tid.x;
  mad.lo.u32 %a, %a, %b, %c;
  mul.wide.u32 %first, %a, 16;
  add.u64 %first, %first, %base;
  mov.u32 %c, %nctaid.x;
  mul.lo.u32 %b, %b, %c;
  mul.wide.u32 %step, %b, 16;
  mov.u32 %sum, 0;
ROUND:
  mov.u64 %at, %first;
LOOP:
  add.u64 %q1, %at, %step;
  add.u64 %q2, %q1, %step;
  add.u64 %q3, %q2, %step;
  ld.global.cg.v4.u32 {%v0, %v1, %v2, %v3}, [%at];
  ld.global.cg.v4.u32 {%v4, %v5, %v6, %v7}, [%q1];
  ld.global.cg.v4.u32 {%v8, %v9, %v10, %v11}, [%q2];
  ld.global.cg.v4.u32 {%v12, %v13, %v14, %v15}, [%q3];
  xor.b32 %v0, %v0, %v1;
  xor.b32 %v2, %v2, %v3;
  xor.b32 %v4, %v4, %v5;
  xor.b32 %v6, %v6, %v7;
  xor.b32 %v8, %v8, %v9;
  xor.b32 %v10, %v10, %v11;
  xor.b32 %v12, %v12, %v13;
  xor.b32 %v14, %v14, %v15;
  xor.b32 %v0, %v0, %v2;
  xor.b32 %v4, %v4, %v6;
  xor.b32 %v8, %v8, %v10;
  xor.b32 %v12, %v12, %v14;
  xor.b32 %v0, %v0, %v4;
  xor.b32 %v8, %v8, %v12;
  xor.b32 %v0, %v0, %v8;
  add.u32 %sum, %sum, %v0;
  add.u64 %at, %q3, %step;
  setp.lt.u64 %p, %at, %end;
  @%p bra LOOP;
  sub.u32 %left, %left, 1;
  setp.ne.u32 %p, %left, 0;
  @%p bra ROUND;
  setp.eq.u32 %p, %sum, 0x9E3779B9;
  @%p st.global.u32 [%out], %sum;
  ret;
}

.visible .entry shared_chase(.param .u32 steps_, .param .u64 out_)
{
  .shared .align 16 .b8 cells[32768];
  .reg .pred %p;
  .reg .u32 %i, %base, %next, %at, %left;
  .reg .u64 %out;
  ld.param.u32 %left, [steps_];
  ld.param.u64 %out, [out_];
  mov.u32 %base, cells;
  mov.u32 %i, 0;
FILL:
  mad.lo.u32 %next, %i, 1229, 1021;
  and.b32 %next, %next, 2047;
  mad.lo.u32 %next, %next, 16, %base;
  mad.lo.u32 %at, %i, 16, %base;
  st.volatile.shared.u32 [%at], %next;
  add.u32 %i, %i, 1;
  setp.ne.u32 %p, %i, 2048;
  @%p bra FILL;
  mov.u32 %at, %base;
LOOP:
  ld.volatile.shared.u32 %at, [%at];
  ld.volatile.shared.u32 %at, [%at];
  ld.volatile.shared.u32 %at, [%at];
  ld.volatile.shared.u32 %at, [%at];
  sub.u32 %left, %left, 4;
  setp.ne.u32 %p, %left, 0;
  @%p bra LOOP;
  st.global.u32 [%out], %at;
  ret;
}

.visible .entry shared_read(.param .u32 rounds_, .param .u64 out_)
{
  .shared .align 16 .b8 cells[32768];
  .reg .pred %p;
  .reg .u32 %at, %base, %left, %sum, %v<8>;
  .reg .u64 %out;
  ld.param.u32 %left, [rounds_];
  ld.param.u64 %out, [out_];
  mov.u32 %at, %tid.x;
  and.b32 %at, %at, 1023;
  mov.u32 %base, cells;
  mad.lo.u32 %at, %at, 16, %base;
  mov.u32 %sum, 0;
  mov.u32 %v0, 0;
  st.volatile.shared.v4.u32 [%at], {%v0, %v0, %v0, %v0};
  st.volatile.shared.v4.u32 [%at+16384], {%v0, %v0, %v0, %v0};
  bar.sync 0;
LOOP:
  ld.volatile.shared.v4.u32 {%v0, %v1, %v2, %v3}, [%at];
  ld.volatile.shared.v4.u32 {%v4, %v5, %v6, %v7}, [%at+16384];
  xor.b32 %v0, %v0, %v1;
  xor.b32 %v2, %v2, %v3;
  xor.b32 %v4, %v4, %v5;
  xor.b32 %v6, %v6, %v7;
  xor.b32 %v0, %v0, %v2;
  xor.b32 %v4, %v4, %v6;
  xor.b32 %v0, %v0, %v4;
  add.u32 %sum, %sum, %v0;
  sub.u32 %left, %left, 1;
  setp.ne.u32 %p, %left, 0;
  @%p bra LOOP;
  setp.eq.u32 %p, %sum, 0x9E3779B9;
  @%p st.global.u32 [%out], %sum;
  ret;
}
)ptx";

}  // namespace headroom::device::internal
