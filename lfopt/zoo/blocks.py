"""The parts that the mobile networks share: squeeze-and-excite, channel rounding, late padding."""

from __future__ import annotations

from lfopt.zoo.builder import Net, Pads, Value

# Mean before the gate, such that a gate which hardly moves and one which is either open or shut have the same
# mean square: 1/2. Otherwise the values of a deep network would grow wherever its gates move more than
# estimated, as they do on images with large even areas.
_GATE_SHIFT = {"sigmoid": 0.881, "hard_sigmoid": 1.243}


def gate(net: Net, at: str, x: Value, reduced: int, act: str, gate_act: str) -> Value:
    """Squeeze-and-excite: one factor a channel, n, c, 1, 1, computed from the mean of every channel.

    The caller multiplies, because exporters differ in which factor comes first. Source: Hu et al.,
    "Squeeze-and-excitation networks", CVPR 2018.
    """
    g = net.mean(f"{at}.mean", x)
    g = net.conv(f"{at}.reduce", g, reduced, act=act)
    return net.conv(f"{at}.expand", g, x.shape[1], act=gate_act, shift=_GATE_SHIFT[gate_act])


def round_channels(wanted: float, divisor: int = 8) -> int:
    """Nearest multiple of the divisor that is not below 0.9 of what is wanted.

    >>> round_channels(32 * 1.2), round_channels(24 * 1.2), round_channels(72 / 4)
    (40, 32, 24)
    """
    rounded = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * wanted else rounded + divisor


def late_pads(kernel: int, stride: int) -> Pads | None:
    """Pads of networks trained in TensorFlow: a strided window starts one pixel later than a centred one.

    >>> late_pads(5, stride=2), late_pads(5, stride=1)
    ((1, 1, 2, 2), None)
    """
    before, after = (kernel - 1) // 2 - 1, kernel // 2
    return (before, before, after, after) if stride > 1 else None
