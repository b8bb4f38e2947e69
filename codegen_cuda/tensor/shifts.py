"""Device functions that read 16 bytes from wherever they start, out of aligned vectors."""

from __future__ import annotations

from codegen_cuda.tensor.plan import VECTOR
from codegen_cuda.tensor.problem import TensorProblem
from codegen_cuda.tensor.text import ELEMENT

__all__ = ["SHIFT_TOGETHER", "last_vector"]

SHIFT_TOGETHER = """\
// The 16 bytes that start shift bytes into low; the rest of them lies in high.
__device__ __forceinline__ uint4 shift_together(uint4 low, uint4 high, u32 shift) {
    u32 w0 = low.x, w1 = low.y, w2 = low.z, w3 = low.w, w4 = high.x, w5 = high.y, w6 = high.z;
    if (shift & 8u) { w0 = w2; w1 = w3; w2 = w4; w3 = w5; w4 = w6; w5 = high.w; }
    if (shift & 4u) { w0 = w1; w1 = w2; w2 = w3; w3 = w4; w4 = w5; }
    const u32 bits = (shift & 3u) * 8u;
    uint4 r;
    r.x = __funnelshift_r(w0, w1, bits);
    r.y = __funnelshift_r(w1, w2, bits);
    r.z = __funnelshift_r(w2, w3, bits);
    r.w = __funnelshift_r(w3, w4, bits);
    return r;
}
"""


def last_vector(problem: TensorProblem) -> str:
    """Return the device function that reads the vector in which the source ends, if it ends inside one."""
    total = problem.span("src") * problem.width
    tail = total % VECTOR
    if not tail:
        return ""
    lines = [
        "// The elements from the buffer's last aligned vector on, and zeros.",
        "__device__ __forceinline__ uint4 last_vector(const unsigned char* __restrict__ src) {",
        "    uint4 v = {0u, 0u, 0u, 0u};",
        *_tail(problem.width, tail, total - tail),
        "    return v;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _tail(width: int, tail: int, last: int) -> list[str]:
    """Load the elements of a vector that the buffer ends in."""
    kind = ELEMENT[min(width, 4)]
    lines = []
    for at in range(0, tail, min(width, 4)):
        shift = f" << {8 * (at % 4)}" if at % 4 else ""
        lines.append(f"    v.{'xyzw'[at // 4]} |= (u32)*(const {kind}*)(src + {last + at}ull){shift};")
    return lines
