"""Mean and variance of every tensor of a network, estimated without running it, to scale random weights.

Only the algebra of means and variances is used: weights are random and independent, and what enters an
activation is taken as normal. This is the analytic prediction of Brock, De and Smith, "Characterizing signal
propagation to close the performance gap in unnormalized ResNets" (ICLR 2021), with the variance split into
the part that depends on the input and the part that does not: a network whose static part wins answers the
same to every image, which hides errors from a comparison of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

# Gauss-Hermite rule: sum(_WEIGHTS * f(_NODES)) is the mean of f over the standard normal.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()

# Largest of n independent rectified normals, n being the positions of a window: how far its mean lies above
# theirs, in their standard deviations, and its variance as a fraction of theirs (by numerical integration of
# the density of the maximum).
_LARGEST_OF = {
    4: (1.108, 1.321),
    8: (1.756, 1.089),
    9: (1.861, 1.046),
    25: (2.683, 0.758),
    81: (3.481, 0.566),
    169: (3.924, 0.487),
}

# Neighbouring positions of a map are correlated: the mean of n of them varies as that of n / 4 independent
# ones (measured on the zoo).
_CORRELATED_POSITIONS = 4

# Channels are not equally strong, and after an activation a stronger one has a larger mean: variance of those
# means, as a fraction of the variance over positions (measured on the zoo).
_UNEVEN_CHANNELS = 0.05


@dataclass(frozen=True, slots=True)
class Moments:
    """What is expected of the values of one tensor."""

    mean: float  # over all channels, positions and inputs
    static: float  # variance between channels of what does not depend on the input
    varying: float  # variance over positions and inputs

    @property
    def variance(self) -> float:
        """Variance of one value drawn from the tensor."""
        return self.static + self.varying

    @property
    def mean_square(self) -> float:
        """Mean square of one value drawn from the tensor."""
        return self.mean**2 + self.variance


IMAGE = Moments(0.0, 0.0, 1.0)  # a normalized image: zero mean, unit variance


def activated(function: Callable[[np.ndarray], np.ndarray], x: Moments) -> Moments:
    """Moments of function(x), by quadrature over the static part (axis 0) and the varying part (axis 1) of x.

    `function` is elementwise: it gives an array in the shape of its argument.

    >>> after = activated(lambda v: np.maximum(v, 0), IMAGE)
    >>> round(after.mean, 1), after.static, round(after.varying, 2)
    (0.4, 0.0, 0.34)
    """
    y = function(x.mean + np.sqrt(x.static) * _NODES[:, None] + np.sqrt(x.varying) * _NODES[None, :])
    by_channel = y @ _WEIGHTS
    mean = float(_WEIGHTS @ by_channel)
    static = float(_WEIGHTS @ (by_channel - mean) ** 2)
    varying = float(_WEIGHTS @ ((y - by_channel[:, None]) ** 2 @ _WEIGHTS))
    return Moments(mean, static if x.static > 0 else 0.0, varying)


def weighted(x: Moments, gain: float, live: float, offset: float) -> Moments:
    """Moments of a sum of products of x, less its mean, with random weights.

    gain: fan-in * variance of a weight. live: fraction of the products that do not fall on zero padding.
    offset: the mean, where it is the bias that takes it off, since padding then counts as -offset; else 0.
    """
    return Moments(0.0, gain * (live * x.static + (1 - live) * offset**2), gain * live * x.varying)


def added(a: Moments, b: Moments) -> Moments:
    """Moments of a + b, uncorrelated."""
    return Moments(a.mean + b.mean, a.static + b.static, a.varying + b.varying)


def multiplied(a: Moments, b: Moments) -> Moments:
    """Moments of a * b, independent."""
    mean = a.mean * b.mean
    static = (a.mean**2 + a.static) * (b.mean**2 + b.static) - mean**2
    return Moments(mean, static, a.mean_square * b.mean_square - mean**2 - static)


def joined(parts: Sequence[tuple[int, Moments]]) -> Moments:
    """Moments of a concatenation of (channels, moments)."""
    total = sum(channels for channels, _ in parts)
    mean = sum(channels * m.mean for channels, m in parts) / total
    static = sum(channels * (m.static + (m.mean - mean) ** 2) for channels, m in parts) / total
    return Moments(mean, static, sum(channels * m.varying for channels, m in parts) / total)


def averaged(x: Moments, positions: int) -> Moments:
    """Moments of the mean over `positions` positions of an activated map."""
    return Moments(
        x.mean,
        x.static + _UNEVEN_CHANNELS * x.varying,
        x.varying * min(1.0, _CORRELATED_POSITIONS / positions),
    )


def largest(x: Moments, positions: int) -> Moments:
    """Moments of the maximum over a window of `positions` positions of a map after ReLU."""
    shift, shrink = _LARGEST_OF[positions]
    return Moments(x.mean + shift * float(np.sqrt(x.varying)), x.static, x.varying * shrink)


def normalized(x: Moments) -> Moments:
    """Moments of x less its mean over its standard deviation, both over the features of one position."""
    return Moments(0.0, x.static / x.variance, x.varying / x.variance)


def attended(x: Moments, seen: Sequence[int], std: float = 1.0) -> Moments:
    """Moments of x averaged by attention whose scores are normal with standard deviation std.

    seen: how many positions each query looks at. The weights of n positions are exp(score) over their sum:
    the sum of their squares is 1 for one position, near exp(std^2) / n for many.
    """
    strength = np.exp(std**2)
    kept = float(np.mean(strength / (np.asarray(seen) - 1 + strength)))
    return Moments(x.mean, x.static, x.varying * kept)


def live_taps(size: int, out: int, kernel: int, stride: int, dilation: int, before: int) -> float:
    """Fraction of a kernel's taps that fall inside the input, not on zero padding, over outputs of one axis.

    >>> live_taps(size=7, out=7, kernel=3, stride=1, dilation=1, before=1) == 19 / 21
    True
    """
    tap = np.arange(out)[:, None] * stride - before + np.arange(kernel)[None, :] * dilation
    return float(np.mean((tap >= 0) & (tap < size)))
