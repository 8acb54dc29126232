"""The kernel that proves a GPU, and the values that it must compute.

It repeats a step of a linear congruential generator on each value. Many steps equal one step with
other constants, so the expected values are cheap to compute without a GPU.
"""

from array import array
from typing import Final

NAME: Final = "prove"
COUNT: Final = 65_536
THREADS: Final = 256
"""Threads of a block; the count is a multiple of it."""
STEPS: Final = 256
MULTIPLIER: Final = 1_664_525
INCREMENT: Final = 1_013_904_223

_MASK: Final = 0xFFFF_FFFF

PTX: Final = f"""\
.version 6.0
.target sm_50
.address_size 64

.visible .entry {NAME}(.param .u64 values)
{{
    .reg .pred %again;
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;

    ld.param.u64 %rd1, [values];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r4, [%rd3];
    mov.u32 %r5, {STEPS};
step:
    mad.lo.u32 %r4, %r4, {MULTIPLIER}, {INCREMENT};
    sub.u32 %r5, %r5, 1;
    setp.ne.u32 %again, %r5, 0;
    @%again bra step;
    st.global.u32 [%rd3], %r4;
    ret;
}}
"""
"""Any GPU since Maxwell runs it: the driver compiles it for the GPU that it has."""


def first_values(seed: int) -> "array[int]":
    """Return the values that the kernel starts from."""
    return array("I", ((seed + index * 2_654_435_761) & _MASK for index in range(COUNT)))


def count_wrong(before: "array[int]", after: "array[int]") -> int:
    """Return how many values differ from what the kernel must have computed."""
    multiplier, increment = 1, 0
    for _ in range(STEPS):
        multiplier = multiplier * MULTIPLIER & _MASK
        increment = (increment * MULTIPLIER + INCREMENT) & _MASK
    pairs = zip(before, after, strict=True)
    return sum((old * multiplier + increment) & _MASK != new for old, new in pairs)
