"""exp and log from + - * / in float32, as azq/core/include/azq/math.hpp."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

F = np.float32

_ROUND = F(12582912.0)
_EXP = [F(c) for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)]
_LOG = [
    F(c)
    for c in (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
]


def bits(x: F) -> int:
    """The 32 bits of a float32."""
    return int(np.asarray(x, np.float32).view(np.uint32)[()])


def from_bits(pattern: int) -> F:
    """The float32 with these 32 bits."""
    return np.uint32(pattern).view(np.float32)


def exp(x: F) -> F:
    """e^x; 0 below -87."""
    if x < F(-87.0):
        return F(0.0)
    x = min(x, F(88.0))
    shifted = x * F(1.44269504088896341) + _ROUND
    n = shifted - _ROUND
    r = (x - n * F(0.693359375)) + n * F(2.12194440e-4)
    p = _EXP[0]
    for c in _EXP[1:]:
        p = p * r + c
    p = (p * (r * r) + r) + F(1.0)
    return p * from_bits((bits(shifted) - bits(_ROUND) + 127) << 23)


def log(x: F) -> F:
    """Natural logarithm of a positive normal float32."""
    pattern = bits(x)
    exponent = (pattern >> 23) - 126
    m = from_bits((pattern & 0x007FFFFF) | 0x3F000000)
    if m < F(0.707106781186547524):
        exponent -= 1
        m = m + m - F(1.0)
    else:
        m = m - F(1.0)
    z = m * m
    p = _LOG[0]
    for c in _LOG[1:]:
        p = p * m + c
    y = p * m * z
    e = F(exponent)
    y = y - F(2.12194440e-4) * e
    y = y - F(0.5) * z
    return (m + y) + F(0.693359375) * e


def clamp(x: F, low: F, high: F) -> F:
    """x cut to [low, high]."""
    return low if x < low else (high if x > high else x)


def lane_sum(values: Sequence[F]) -> F:
    """The sum as four interleaved partial sums, the order of additions that the core's SIMD uses."""
    lanes = [F(0.0)] * 4
    for i, value in enumerate(values):
        lanes[i % 4] = lanes[i % 4] + value
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])


def plain_sum(values: Sequence[F]) -> F:
    """The sum from left to right."""
    total = F(0.0)
    for value in values:
        total = total + value
    return total
