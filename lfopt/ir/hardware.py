"""The chip: memories, bytes per element, and what time and energy things cost.

What moves is exact. Cycles and energy are a *model*: they follow from the figures that stand here, and are as
good as those are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from math import prod, sqrt
from typing import Any, Literal

from lfopt.ir.errors import InvalidConfig
from lfopt.ir.sizes import UNLIMITED, read_number
from lfopt.ir.tensor import CHANNEL_AXIS_OF_RANK, Tensor, row_axis

Store = Literal["buffer", "weight buffer"]  # what lies on chip at addresses of its own

NEVER = 1 << 62  # bytes: more than any buffer
MAX_PJ = 1e9  # pJ: the most that any event may cost
DRAM_BYTE_PJ = 160.0  # pJ of one byte over the memory port, by default
MAX_TEXT = 1000  # characters of a text
MAX_SHOWN = 40  # of one that is not accepted
# fields without which cycles are a guess
SPEED = frozenset("mac_rows mac_columns vector_lanes port_bytes clock_hz".split())
LEAST_0 = frozenset(
    "parameter_store_bytes parameter_tables instruction_bytes start_cycles weight_latency drain_cycles "
    "port_latency dispatch_cycles byte_slack dram_page_bytes dram_page_cycles weight_buffer_bytes "
    "l2_bytes".split()
)  # fields that may be 0
TEXTS = frozenset("name source".split())  # fields that are read by people
# fields that may be null
OPTIONAL = frozenset(
    "weight_bytes weight_bits bias_bytes block_channels dram_bytes_per_second l2_port_bytes".split()
)
UNSAID = {"unsaid": True}  # metadata of a field that files leave out where it has its default
# the most of fields that have a limit of their own
MOST = {"byte_slack": 1, "mac_utilization": 1, "weight_bits": 64, "dram_bytes_per_second": 1 << 50}
SHARES = {"byte_slack": 0, "mac_utilization": 0.01}  # fields that are shares, and the least of each


def bounds(name: str) -> tuple[float, int]:
    """The least and the most that a field of Hardware may be, where it is a number."""
    return SHARES.get(name, int(name not in LEAST_0)), MOST.get(name, UNLIMITED)


def round_up(value: int, step: int) -> int:
    """Smallest multiple of `step` that is at least `value`.

    >>> round_up(17, 16), round_up(17, 1)
    (32, 17)
    """
    return -(-value // step) * step


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of single events, in pJ: a model to compare plans with, not a measurement of any chip.

    What is spent in every cycle, leakage and control, is left out unless `cycle_pj` says it.

    Where the defaults come from. DRAM and arithmetic are widely quoted 45 nm figures (M. Horowitz,
    "Computing's energy problem", ISSCC 2014: 1.3 nJ per 64-bit DRAM access; 0.2 pJ for an 8-bit
    multiplication and 0.1 pJ for a 32-bit addition). They were taken from general knowledge; that paper was
    not read for them. Buffer and accumulators follow the relative access costs in the published hardware
    descriptions of Optimus (LCTES'21): register 0.1, DRAM 200, buffer 6, 9 and 12 at 128K, 256K and 512K.
    """

    dram_byte_pj: float | None = None  # one byte over the memory port; None: as dram_pj_per_bit, or 160
    dram_pj_per_bit: float | None = None  # one bit, instead of dram_byte_pj
    dram_page_pj: float = 0.0  # opening a page of DRAM: activation and precharge
    # one byte into or out of the buffer; None: by its size (see Hardware.buffer_byte_pj)
    buffer_byte_pj: float | None = None
    # one byte into or out of the second level; None: by its size, as the buffer
    l2_byte_pj: float | None = field(default=None, metadata=UNSAID)
    # one byte into or out of the partial sums beside the MAC array: 0.1 / 200 of a DRAM byte
    accumulator_byte_pj: float = 0.08
    # one multiply-accumulate of 8-bit operands; it grows with the product of the operands' bytes
    mac_pj: float = 0.3
    vector_pj: float = 0.3  # one element through the vector lanes, per byte of the element
    # one cycle that the chip is on, whatever it does: clock tree, control and leakage
    cycle_pj: float = field(default=0.0, metadata=UNSAID)

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = read_number(entry.name, getattr(self, entry.name), f"hardware.energy.{entry.name}")
            object.__setattr__(self, entry.name, value)
            optional = entry.default is None and value is None
            if not optional and not (
                isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_PJ
            ):
                raise InvalidConfig(
                    f"hardware.energy.{entry.name}: found {value!r}; accepted: pJ, from 0 to 1e9"
                )
        if self.dram_byte_pj is not None and self.dram_pj_per_bit is not None:
            given = f"{self.dram_pj_per_bit} beside dram_byte_pj {self.dram_byte_pj}"
            raise InvalidConfig(f"hardware.energy.dram_pj_per_bit: found {given}; accepted: one of them")

    @property
    def pj_per_dram_byte(self) -> float:
        """pJ of one byte over the memory port, however it is written."""
        per_bit = DRAM_BYTE_PJ / 8 if self.dram_pj_per_bit is None else self.dram_pj_per_bit
        if self.dram_byte_pj is None:
            return 8 * per_bit
        return self.dram_byte_pj


class AssumedBytes(int):
    """Bytes of an element that nothing states: see `Hardware.of_network`."""


ASSUMED = AssumedBytes(2)


@dataclass(frozen=True, slots=True, repr=False)
class Hardware:
    """A hardware description. Bytes are integers; KiB = 1024 B.

    Where one is made, numbers may have units: Hardware("256KiB", clock_hz="800MHz").

    Raises InvalidConfig for a field that is not accepted.
    """

    # beta: the on-chip buffer, of feature maps, and of weights if they have no buffer of their own
    buffer_bytes: int
    # one element of a feature map; where nothing says it, 1 of a quantised network
    element_bytes: int = ASSUMED
    weight_bytes: int | None = None  # one weight; None: as element_bytes
    # one weight, instead of weight_bytes, if it is no whole bytes; blocks are rounded up to bytes
    weight_bits: int | None = None
    bias_bytes: int | None = None  # one bias element; None: as element_bytes
    accumulator_bytes: int = 4  # one partial sum held on chip
    # an on-chip buffer for weights and biases; 0: they share that of the feature maps
    weight_buffer_bytes: int = field(default=0, metadata=UNSAID)
    # bytes: a row in DRAM is padded up to a multiple of this; with channel_align, parts of rows begin at one
    dram_row_align: int = 1
    # elements: on chip, channels are padded up to a multiple of this; tilings cut them between such blocks
    channel_align: int = 1
    # output channels that a block of weights has at the least where weights stream past; None: channel_align
    block_channels: int | None = field(default=None, metadata=UNSAID)
    # bytes: a block of a constant that is loaded takes up a multiple of this, in DRAM and on chip
    constant_align: int = 1
    # a store for factors and tables of quantised operators; 0: they come with the commands, uncounted
    parameter_store_bytes: int = 0
    parameter_tables: int = 0  # tables that this store holds at once; 0: as many as its bytes
    parameter_channels: int = 16  # output channels whose factors make one row of parameters
    # MAC array: input channels (depthwise: kernel columns of all its pixels) that meet in one cycle
    mac_rows: int = 16
    mac_columns: int = 16  # MAC array: output channels made side by side
    # share of the cycles of a contraction in which the MAC array takes pixels; in the others it waits
    mac_utilization: float = field(default=1.0, metadata=UNSAID)
    # bytes per cycle, where weights come instead of pixels; beside pixels, a row of the MAC array
    weight_port_bytes: int = 64
    # 1: the MAC array waits while results are requantised; 2: it goes on with the next output channels
    accumulator_banks: int = 2
    accumulator_columns: int = 512  # pixels of a bank: the most that one command makes
    # pixels of a row that are read in one cycle: kernel columns of pools, depthwise and narrow convolutions
    window_columns: int = 4
    # most pixels of a row that a depthwise convolution makes in one cycle; 1: its rows of the array idle
    depthwise_columns: int = 4
    vector_lanes: int = 16  # elements per cycle of everything that is not a contraction
    # cycles of setting up a command; hidden behind the one before, and behind what it waits for
    start_cycles: int = 8
    weight_latency: int = 2  # cycles before the first weights of a command arrive; hidden likewise
    # cycles from a command's last pixel to its last result; hidden from commands that do not wait for it
    drain_cycles: int = 14
    # bytes per cycle and direction, between DRAM and the buffer: loads and stores have a channel each
    port_bytes: int = 16
    # cycles of a transfer before its first byte; hidden behind earlier ones, see transfers_in_flight
    port_latency: int = 40
    transfers_in_flight: int = 2  # of each direction: one moves its bytes while the others wait for theirs
    # a second level between the buffer and DRAM, for maps between groups; 0: there is none
    l2_bytes: int = field(default=0, metadata=UNSAID)
    # bytes per cycle and direction, between it and the buffer; None: as port_bytes
    l2_port_bytes: int | None = field(default=None, metadata=UNSAID)
    # that DRAM moves, loads and stores together; None: what the port moves, in each direction
    dram_bytes_per_second: int | None = None
    # DRAM moves whole bursts: for cycles and energy alone, each run of adjacent bytes is rounded up
    dram_burst_bytes: int = 1
    # bytes that one activation opens, of all devices of the channel; 0: pages are not modelled
    dram_page_bytes: int = 0
    dram_page_cycles: int = 0  # that a transfer waits for every page that it opens: precharge and activation
    # commands of a queue (loads, stores, computations) that wait or run, before the program waits
    queue_depth: int = 8
    dispatch_cycles: int = 4  # between two commands of the program
    # bytes of each step as written, fetched ahead through the port; counted apart from the plan's bytes
    instruction_bytes: int = 0
    clock_hz: int = 1_000_000_000  # turns cycles into seconds
    overlap: bool = True  # whether transfers and computation run at the same time
    # share of the fewest DRAM bytes that a plan may give up for cycles, where a search does not say otherwise
    byte_slack: float = 0.0
    energy: Energy = field(default_factory=Energy)  # pJ of single events
    name: str = "unnamed"  # of the chip, in reports
    source: str = ""  # where the figures come from, in a line

    def __post_init__(self) -> None:
        for entry in fields(self):
            self._check(entry.name)
        if self.weight_bits is not None and self.weight_bytes is not None:
            raise InvalidConfig(
                f"hardware.weight_bits: found {self.weight_bits} beside weight_bytes {self.weight_bytes}; "
                "accepted: one of them"
            )

    def _check(self, name: str) -> None:
        """Read a field that has a unit; raise InvalidConfig where it is not accepted."""
        value, (least, most) = getattr(self, name), bounds(name)
        if name in TEXTS:
            if not isinstance(value, str) or len(value) > MAX_TEXT:
                raise InvalidConfig(
                    f"hardware.{name}: found {str(value)[:MAX_SHOWN]!r}; "
                    f"accepted: text of up to {MAX_TEXT} characters"
                )
            return
        if name == "energy":
            if not isinstance(value, Energy):
                raise InvalidConfig(f"hardware.energy: found {value!r}; accepted: an Energy")
            return
        if name == "overlap":
            if not isinstance(value, bool):
                raise InvalidConfig(f"hardware.overlap: found {value!r}; accepted: true or false")
            return
        object.__setattr__(self, name, value := read_number(name, value, f"hardware.{name}"))
        if value is None and name in OPTIONAL:
            return
        if name in SHARES:
            least = SHARES[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise InvalidConfig(
                    f"hardware.{name}: found {value!r}; accepted: a share from {least:g} to 1"
                )
        elif not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            high = most if name == "weight_bits" else f"2**{most.bit_length() - 1}"
            raise InvalidConfig(
                f"hardware.{name}: found {value!r}; accepted: a whole number from {least} to {high}"
            )

    def __repr__(self) -> str:
        """The fields that are not as by default."""
        said = [
            f.name
            for f in fields(self)
            if f.default is MISSING and f.default_factory is MISSING or getattr(self, f.name) != _default(f)
        ]
        return f"Hardware({', '.join(f'{name}={getattr(self, name)!r}' for name in said)})"

    def of_network(self, *, quantized: bool) -> Hardware:
        """The same for a network: where nothing states `element_bytes`, 1 if it is quantised.

        >>> [chip.of_network(quantized=True) for chip in (Hardware(1024), Hardware(1024, element_bytes=2))]
        [Hardware(buffer_bytes=1024, element_bytes=1), Hardware(buffer_bytes=1024)]
        """
        follows = quantized and isinstance(self.element_bytes, AssumedBytes)
        if follows:
            return replace(self, element_bytes=1)
        return self

    @property
    def assumed(self) -> bool:
        """Whether the MAC array, the vector lanes, the port and the clock are all the default ones.

        Cycles are then those of the default chip.
        """
        return all(
            getattr(self, entry.name) == _default(entry) for entry in fields(self) if entry.name in SPEED
        )

    @property
    def stores(self) -> dict[Store, int]:
        """Bytes of each on-chip buffer. What lies in one has addresses from 0 up to below these."""
        if not self.weight_buffer_bytes:
            return {"buffer": self.buffer_bytes}
        return {"buffer": self.buffer_bytes, "weight buffer": self.weight_buffer_bytes}

    def store_of(self, purpose: str) -> Store:
        """The on-chip buffer of a place of this purpose (`Place.purpose`).

        Constants are in the weight buffer where there is one.
        """
        if purpose == "weight" and self.weight_buffer_bytes:
            return "weight buffer"
        return "buffer"

    def buffer_need(self, maps: int, weights: int) -> int:
        """F_beta of so many bytes of maps and partial sums, and of weights: what the buffer must exceed.

        With a weight buffer that is what the maps take; NEVER where that buffer does not exceed the weights.

        >>> Hardware(1024).buffer_need(500, 200)
        700
        >>> Hardware(1024, weight_buffer_bytes=256).buffer_need(500, 200)
        500
        >>> Hardware(1024, weight_buffer_bytes=200).buffer_need(500, 200) == NEVER
        True
        """
        if not self.weight_buffer_bytes:
            return maps + weights
        if weights < self.weight_buffer_bytes:
            return maps
        return NEVER

    @property
    def narrowest_block(self) -> int:
        """Output channels of the narrowest blocks that weights stream past in.

        >>> Hardware(1024, channel_align=16, block_channels=24).narrowest_block
        32
        """
        return round_up(self.block_channels or 1, self.channel_align)

    @property
    def with_wide_blocks(self) -> Hardware:
        """The same with blocks of weights as wide as its MAC array, if it says nothing and they are not.

        >>> chips = Hardware(1024, mac_columns=8), Hardware(1024, channel_align=16)
        >>> [chip.with_wide_blocks.block_channels for chip in chips]
        [8, None]
        """
        if self.block_channels is not None or self.narrowest_block >= self.mac_columns:
            return self
        return replace(self, block_channels=self.mac_columns)

    @property
    def buffer_byte_pj(self) -> float:
        """pJ of one byte into or out of the buffer; see `_byte_pj`."""
        return self._byte_pj(self.buffer_bytes)

    @property
    def weight_byte_pj(self) -> float:
        """pJ of one byte of weights into or out of the buffer that they lie in."""
        return self._byte_pj(self.weight_buffer_bytes or self.buffer_bytes)

    def on_chip_pj(self, maps: int, weights: int) -> float:
        """pJ of so many bytes of maps and of weights into or out of the buffers that they lie in."""
        if not self.weight_buffer_bytes:
            return (maps + weights) * self.buffer_byte_pj
        return maps * self.buffer_byte_pj + weights * self.weight_byte_pj

    def _byte_pj(self, size: int) -> float:
        """pJ of one byte into or out of an on-chip buffer.

        Where the table does not say: 6 / 200 of a DRAM byte at 128 KiB, growing with the square root of the
        size. Against Optimus' 6, 9 and 12 at 128K, 256K and 512K that is 6, 8.5 and 12.
        """
        given = self.energy.buffer_byte_pj
        if given is None:
            return self._pj_by_size(size)
        return given

    @property
    def l2_byte_pj(self) -> float:
        """pJ of one byte into or out of the second level; by default, that of a buffer of its size."""
        given = self.energy.l2_byte_pj
        if given is None:
            return self._pj_by_size(self.l2_bytes)
        return given

    def _pj_by_size(self, size: int) -> float:
        return self.energy.pj_per_dram_byte * 6 / 200 * sqrt(size / (1 << 17))

    @property
    def plain_dram(self) -> bool:
        """Whether neither bursts nor pages of DRAM are modelled."""
        return self.dram_burst_bytes == 1 and self.dram_page_bytes == 0

    def dram_cycles(self, size: int, pages: int = 0) -> int:
        """Cycles in which DRAM moves so many bytes, and opens so many pages.

        >>> Hardware(1024, port_bytes=16, dram_bytes_per_second="4GB/s", clock_hz="1GHz").dram_cycles(64)
        16
        """
        rate = self.dram_bytes_per_second
        return (
            -(-size // self.port_bytes) if rate is None else -(-size * self.clock_hz // rate)
        ) + pages * self.dram_page_cycles

    def dram_bytes(self, tensor: Tensor) -> int:
        """Bytes of a whole feature map in DRAM, row padding included."""
        rows = tensor.rows
        return rows * round_up(tensor.elements // max(rows, 1) * self.element_bytes, self.dram_row_align)

    def row_bytes(self, tensor: Tensor) -> int:
        """Bytes of one row of a feature map on chip: channel padding, and all images of a batch, included."""
        return self.row_bytes_of(tensor.shape)

    def row_bytes_of(self, shape: Sequence[Any]) -> Any:
        """As `row_bytes`, of a part of a map; extents may be arrays of one shape, as the result then is.

        >>> Hardware(1024, element_bytes=2, channel_align=16).row_bytes_of((1, 20, 7, 5))
        320
        """
        extents = list(shape)
        axis = row_axis(tuple(shape))
        channel = CHANNEL_AXIS_OF_RANK.get(len(extents))
        if channel is not None:
            extents[channel] = round_up(extents[channel], self.channel_align)
        if axis is not None:
            extents[axis] = 1
        return prod(extents) * self.element_bytes

    def holds_parameters(self, size: int, tables: int) -> bool:
        """Whether the store for parameters holds so many bytes at once, and so many tables."""
        return size <= self.parameter_store_bytes and (
            not self.parameter_tables or tables <= self.parameter_tables
        )

    def sums_bytes(self, size: int) -> int:
        """Bytes of the partial sums of as many elements of a feature map as take so many bytes on chip.

        >>> Hardware(1024, element_bytes=2).sums_bytes(64)
        128
        """
        return size // self.element_bytes * self.accumulator_bytes

    def constant_bytes(self, elements: int, *, bias: bool, pieces: int = 1) -> int:
        """Bytes of a block of weights (or biases), on chip and in DRAM; or of so many equal pieces of one.

        A block, or piece, lies by itself: its elements are packed, and it is rounded up to whole bytes and to
        constant_align.

        >>> Hardware(1024, element_bytes=1, constant_align=16).constant_bytes(20, bias=False, pieces=2)
        32
        >>> Hardware(1024, weight_bits=4).constant_bytes(5, bias=False)
        3
        """
        return pieces * round_up(
            -(-(elements // max(pieces, 1) * self.constant_bits(bias=bias)) // 8), self.constant_align
        )

    def constant_bits(self, *, bias: bool) -> int:
        """Bits of one weight (or bias) in its block."""
        if not bias and self.weight_bits is not None:
            return self.weight_bits
        per_element = self.bias_bytes if bias else self.weight_bytes
        return 8 * (self.element_bytes if per_element is None else per_element)

    @property
    def pads_constants(self) -> bool:
        """Whether the parts of a constant may take more bytes than the whole."""
        return self.constant_align > 1 or self.constant_bits(bias=False) % 8 != 0

    @property
    def in_bits(self) -> Hardware:
        """The same with bits for bytes, and nothing padded: what it counts is proportional to elements."""
        weight, bias = (self.constant_bits(bias=bias) for bias in (False, True))
        sizes = {
            "element_bytes": 8 * self.element_bytes,
            "weight_bytes": weight,
            "weight_bits": None,
            "bias_bytes": bias,
        }
        return replace(self, **sizes, dram_row_align=1, constant_align=1)


def _default(of: Field[Any]) -> Any:
    if of.default_factory is MISSING:
        return of.default
    return of.default_factory()
