"""Count the bytes that the command stream of an Ethos-U names, by purpose and memory region.

A file that Arm's Vela wrote holds, for each sequence of NPU operators, a payload for the driver: a header and
the command stream. A command sets a register or starts an operation, which reads and writes what the
registers name: feature maps, weights, scales, and copies by DMA. Here every element that an operation uses is
counted once, however often the blocks of the hardware read it. So the count is a lower bound on the traffic,
taken from what is executed, not from an estimate. Multiply-accumulates are counted as Vela's summary counts
them, pools included: where both agree, shapes, kernels and strides were read right.

Codes and fields are those of the register definitions in the wheel of Vela (`ethos_u55_regs.py`) for U55 and
U65, and of the disassembly that it prints (`--verbose-register-command-stream`) for U85; tests compare both.

    python benchmarks/ethos_stream.py network_vela.tflite
"""

from __future__ import annotations

import argparse
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

WORD = struct.calcsize("<I")
FAMILIES = ("u55", "u65", "u85")  # by the product number in the header
REGIONS = ("constants", "arena", "fast scratch")  # by number, as Vela uses them

# -- commands: code -> name ----------------------------------------------------------------------------------

OPERATIONS = {
    0x000: "STOP", 0x001: "IRQ", 0x002: "CONV", 0x003: "DEPTHWISE", 0x005: "POOL", 0x006: "ELEMENTWISE",
    0x010: "DMA_START", 0x011: "DMA_WAIT", 0x012: "KERNEL_WAIT", 0x013: "PMU_MASK",
}  # fmt: skip
# Registers of 16 bits, whose value is in the command
NARROW = {
    0x100: "IFM_PAD_TOP",      0x101: "IFM_PAD_LEFT",     0x102: "IFM_PAD_RIGHT",    0x103: "IFM_PAD_BOTTOM",
    0x104: "IFM_DEPTH_M1",     0x105: "IFM_PRECISION",    0x107: "IFM_UPSCALE",      0x109: "IFM_ZERO_POINT",
    0x10A: "IFM_WIDTH0_M1",    0x10B: "IFM_HEIGHT0_M1",   0x10C: "IFM_HEIGHT1_M1",   0x10F: "IFM_REGION",
    0x111: "OFM_WIDTH_M1",     0x112: "OFM_HEIGHT_M1",    0x113: "OFM_DEPTH_M1",     0x114: "OFM_PRECISION",
    0x115: "OFM_BLK_WIDTH_M1", 0x116: "OFM_BLK_HEIGHT_M1", 0x117: "OFM_BLK_DEPTH_M1", 0x118: "OFM_ZERO_POINT",
    0x11A: "OFM_WIDTH0_M1",    0x11B: "OFM_HEIGHT0_M1",   0x11C: "OFM_HEIGHT1_M1",   0x11F: "OFM_REGION",
    0x120: "KERNEL_WIDTH_M1",  0x121: "KERNEL_HEIGHT_M1", 0x122: "KERNEL_STRIDE",    0x124: "ACC_FORMAT",
    0x125: "ACTIVATION",       0x126: "ACTIVATION_MIN",   0x127: "ACTIVATION_MAX",   0x128: "WEIGHT_REGION",
    0x129: "SCALE_REGION",     0x12F: "BLOCKDEP",         0x130: "DMA0_SRC_REGION",  0x131: "DMA0_DST_REGION",
    0x132: "DMA0_SIZE0",       0x133: "DMA0_SIZE1",       0x180: "IFM2_BROADCAST",   0x185: "IFM2_PRECISION",
    0x189: "IFM2_ZERO_POINT",  0x18A: "IFM2_WIDTH0_M1",   0x18B: "IFM2_HEIGHT0_M1",  0x18C: "IFM2_HEIGHT1_M1",
    0x18F: "IFM2_REGION",
}  # fmt: skip
# Registers of up to 40 bits: the upper ones in the command, the lower 32 in the word after it
WIDE = {
    0x000: "IFM_BASE0",     0x001: "IFM_BASE1",     0x002: "IFM_BASE2",     0x003: "IFM_BASE3",
    0x004: "IFM_STRIDE_X",  0x005: "IFM_STRIDE_Y",  0x006: "IFM_STRIDE_C",
    0x010: "OFM_BASE0",     0x011: "OFM_BASE1",     0x012: "OFM_BASE2",     0x013: "OFM_BASE3",
    0x014: "OFM_STRIDE_X",  0x015: "OFM_STRIDE_Y",  0x016: "OFM_STRIDE_C",
    0x020: "WEIGHT_BASE",   0x021: "WEIGHT_LENGTH", 0x022: "SCALE_BASE",    0x023: "SCALE_LENGTH",
    0x024: "OFM_SCALE",     0x030: "DMA0_SRC",      0x031: "DMA0_DST",      0x032: "DMA0_LEN",
    0x080: "IFM2_BASE0",    0x081: "IFM2_BASE1",    0x082: "IFM2_BASE2",    0x083: "IFM2_BASE3",
    0x084: "IFM2_STRIDE_X", 0x085: "IFM2_STRIDE_Y", 0x086: "IFM2_STRIDE_C",
    0x090: "WEIGHT1_BASE",  0x091: "WEIGHT1_LENGTH",
}  # fmt: skip
U65_NARROW = NARROW | {
    0x10D: "IFM_IB_END",      0x123: "PARALLEL_MODE",       0x12D: "AB_START",
    0x181: "IFM2_SCALAR",     0x18D: "IFM2_IB_START",
}  # fmt: skip
U65_WIDE = WIDE | {
    0x025: "OPA_SCALE",     0x026: "OPB_SCALE",     0x033: "DMA0_SKIP0",    0x034: "DMA0_SKIP1",
    0x092: "SCALE1_BASE",   0x093: "SCALE1_LENGTH",
}  # fmt: skip
U85_NARROW = NARROW | {
    0x108: "IFM_BROADCAST",   0x12A: "RESIZE_X_SCALE_N_M1", 0x12B: "RESIZE_Y_SCALE_N_M1",
    0x12C: "RESIZE_X_OFFSET", 0x12D: "RESIZE_Y_OFFSET",     0x12E: "WEIGHT_FORMAT",
    0x134: "DMA0_IDX_REGION",
}  # fmt: skip
U85_WIDE = WIDE | {
    0x025: "IFM_SCALE",        0x026: "IFM2_SCALE",       0x027: "OP_SCALAR",
    0x033: "DMA0_SRC_STRIDE0", 0x034: "DMA0_SRC_STRIDE1", 0x035: "DMA0_DST_STRIDE0",
    0x036: "DMA0_DST_STRIDE1", 0x037: "DMA0_IDX",         0x038: "DMA0_IDX_MAX",
    0x039: "DMA0_IDX_SKIP1",   0x092: "WEIGHT2_BASE",     0x093: "WEIGHT2_LENGTH",
    0x094: "WEIGHT3_BASE",     0x095: "WEIGHT3_LENGTH",   0x096: "RESIZE_X",         0x097: "RESIZE_Y",
}  # fmt: skip
REGISTERS = {  # by family: those of 16 bits, those of more
    "u55": (U65_NARROW, U65_WIDE),
    "u65": (U65_NARROW, U65_WIDE),
    "u85": (U85_NARROW, U85_WIDE),
}
OTHER_WEIGHTS = ("WEIGHT1_LENGTH", "WEIGHT2_LENGTH", "WEIGHT3_LENGTH")  # of the second core or decoder on
COUNTED = ("CONV", "DEPTHWISE", "POOL", "ELEMENTWISE", "DMA_START")
REDUCE_SUM = 2  # a mode of POOL: sums over channels
POOLS = {"u55": (0, 1, 2), "u65": (0, 1, 2), "u85": (0, 1, 2, 3, 5)}  # MAX, AVERAGE, REDUCE_SUM, SUM, MIN
UNARY = (5, 6, 7, 36)  # modes of ELEMENTWISE with one input: LRELU, ABS, CLZ, NOT
BROADCAST_HEIGHT, BROADCAST_WIDTH, BROADCAST_DEPTH = 1, 2, 4  # bits of a broadcast register
SCALAR = {"u55": 1 << 7, "u65": 1 << 7, "u85": 1 << 3}
NO_UPSCALE, NEAREST, ZEROS = range(3)  # modes of IFM_UPSCALE
BRICK = 16  # channels that lie side by side in the format NHCWB16


class StreamError(ValueError):
    """A file, header or command that is not one that is counted."""


class Command(NamedTuple):
    """One command, as it stands in the stream."""

    offset: int  # bytes from the start of the stream
    name: str
    value: int
    starts: bool  # it starts an operation


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """Where an operation finds the elements of a map, or leaves them."""

    height: int
    width: int
    depth: int
    element_bytes: int
    bricks: bool  # NHCWB16, not NHWC
    bases: tuple[int, ...]  # addresses of the four tiles: above left, above right, below left, below right
    tile_width: int
    tile_heights: tuple[int, int]  # of the tiles on the left and on the right
    strides: tuple[int, int, int]  # bytes from row to row, column to column, brick to brick

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return self.height * self.width * self.depth * self.element_bytes


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes of one memory region that an operation reads or writes."""

    purpose: str  # map read, map write, weights, scales, copy read or copy write
    region: int
    bytes: int
    map: FeatureMap | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """A command that starts an operation, and what it names."""

    offset: int
    kind: str
    accesses: tuple[Access, ...]
    macs: int = 0


@dataclass
class Named:
    """What the operations of a stream name, summed."""

    bytes: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])  # by purpose and region
    operations: Counter[str] = field(default_factory=Counter[str])
    macs: int = 0

    def total(self, regions: Sequence[int], *purposes: str) -> int:
        """Bytes of these regions: of these purposes, or of all."""
        return sum(
            moved
            for (purpose, region), moved in self.bytes.items()
            if region in regions and (not purposes or purpose in purposes)
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="*_vela.tflite")
    try:
        named = count(parser.parse_args().file.read_bytes())
    except (OSError, StreamError) as error:
        raise SystemExit(str(error)) from None
    for (purpose, region), moved in sorted(named.bytes.items()):
        place = REGIONS[region] if region < len(REGIONS) else ""
        print(f"{purpose:<12}region {region} {place:<14}{moved:>14,} B")
    print(f"{', '.join(f'{n} {kind}' for kind, n in named.operations.items())}; {named.macs:,} MACs")


def count(model: bytes) -> Named:
    """What all command streams of a TFLite file name. Raises StreamError."""
    named = Named()
    for payload in payloads(model):
        family, words = unpacked(payload)
        for operation in operations(words, family):
            named.operations[operation.kind] += 1
            named.macs += operation.macs
            for access in operation.accesses:
                named.bytes[access.purpose, access.region] += access.bytes
    return named


# -- the file ------------------------------------------------------------------------------------------------


def payloads(model: bytes) -> list[bytes]:
    """The first input of every operator `ethos-u` of a TFLite file. The classes of the schema are Vela's."""
    if model[4:8] != b"TFL3":
        raise StreamError(f"byte 4: {model[4:8]!r} is no TFLite file; accepted: TFL3")
    schema = import_module("ethosu.vela.tflite.Model")
    try:
        root = schema.Model.GetRootAs(bytearray(model), 0)
        codes = [root.OperatorCodes(k).CustomCode() for k in range(root.OperatorCodesLength())]
        main_graph = root.Subgraphs(0)
        streams: list[bytes] = []
        for k in range(main_graph.OperatorsLength()):
            operator = main_graph.Operators(k)
            if codes[operator.OpcodeIndex()] == b"ethos-u":
                tensor = main_graph.Tensors(operator.Inputs(0))
                streams.append(root.Buffers(tensor.Buffer()).DataAsNumpy().tobytes())
    except (struct.error, IndexError, AttributeError, TypeError, ValueError) as error:
        raise StreamError(f"TFLite file of {len(model)} bytes is damaged: {error}") from None
    if not streams:
        raise StreamError("no operator 'ethos-u' in the file; accepted: *_vela.tflite")
    return streams


def unpacked(payload: bytes) -> tuple[str, Sequence[int]]:
    """Family and command stream (words) of a payload for the driver.

    >>> header = struct.pack("<6I", 0x31504F43, 1, 1 << 28, 0, 5, 1 << 16 | 2)
    >>> unpacked(header + struct.pack("<I", 0xFFFF0000))
    ('u65', (4294901760,))
    """
    if len(payload) % WORD or len(payload) < WORD:
        raise StreamError(f"payload of {len(payload)} bytes; accepted: words of {WORD} bytes")
    if payload[:WORD] != b"COP1":
        raise StreamError(f"payload, byte 0: {payload[:WORD]!r}; accepted: COP1")
    words = struct.unpack(f"<{len(payload) // WORD}I", payload)
    family = ""
    k = 1
    while k < len(words):
        action = words[k] & 0xFF
        where = f"payload, byte {k * WORD:#x}"
        if action == 1:  # configuration, followed by two words
            if k + 2 >= len(words):
                raise StreamError(f"{where}: configuration of {len(words) - k - 1} words; accepted: 2")
            product = words[k + 1] >> 28
            if product >= len(FAMILIES):
                raise StreamError(f"{where}: product {product}; accepted: 0 (U55), 1 (U65), 2 (U85)")
            family = FAMILIES[product]
            k += 3
        elif action == 2:  # the command stream
            length = words[k] >> 16 | (words[k] >> 8 & 0xFF) << 16
            stream = words[k + 1 :]
            if len(stream) != length:
                raise StreamError(f"{where}: {length} words announced, {len(stream)} follow")
            if not family:
                raise StreamError(f"{where}: no configuration stands before the command stream")
            return family, stream
        elif action == 5:  # padding
            k += 1
        else:
            raise StreamError(f"{where}: driver action {action}; accepted: 1, 2 and 5")
    raise StreamError(f"payload of {len(payload)} bytes holds no command stream")


def commands(words: Sequence[int], family: str) -> Iterator[Command]:
    """Commands of a stream, by name. Raises StreamError for one that the family does not have."""
    narrow, wide = REGISTERS[family]
    k = 0
    while k < len(words):
        offset, code, value = k * WORD, words[k] & 0xFFFF, words[k] >> 16
        if code in OPERATIONS:
            yield Command(offset, OPERATIONS[code], value, starts=True)
        elif code in narrow:
            yield Command(offset, narrow[code], value, starts=False)
        elif code & 0xC000 == 0x4000 and code & 0x3FFF in wide:
            k += 1
            if k == len(words):
                raise StreamError(f"command stream, byte {offset:#x}: the word after {code:#06x} is missing")
            yield Command(offset, wide[code & 0x3FFF], value << 32 | words[k], starts=False)
        else:
            raise StreamError(
                f"command stream, byte {offset:#x}: command {code:#06x} is not counted for {family.upper()}; "
                f"accepted: registers of the family, {', '.join(OPERATIONS.values())}"
            )
        k += 1


# -- operations ----------------------------------------------------------------------------------------------


def operations(words: Sequence[int], family: str) -> Iterator[Operation]:
    """Operations of a stream, with what the registers name when each starts. Raises StreamError."""
    registers = Registers(family)
    stopped = False
    for command in commands(words, family):
        if stopped:
            raise StreamError(f"command stream, byte {command.offset:#x}: {command.name} after STOP")
        if not command.starts:
            registers.values[command.name] = command.value
        elif command.name in COUNTED:
            registers.offset = command.offset
            yield registers.operation(command.name, command.value)
        stopped = command.starts and command.name == "STOP"
    if not stopped:
        raise StreamError(f"command stream of {len(words) * WORD} bytes does not end with STOP")


class Registers:
    """The registers of an accelerator between two operations."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.values: dict[str, int] = {}
        self.offset = 0  # of the command that starts an operation, for messages

    def __getitem__(self, name: str) -> int:
        if name not in self.values:
            raise self._refused(f"register {name} is used before it is set")
        return self.values[name]

    def operation(self, kind: str, mode: int) -> Operation:
        """What an operation names. `mode`: the value in the command that starts it."""
        if kind == "DMA_START":
            return self._copy()
        if self.family == "u85" and self["ACC_FORMAT"] >> 4 & 3 == 2:
            raise self._refused("accumulators that start from IFM2 are not counted")
        height, width, depth = (self[f"OFM_{axis}_M1"] + 1 for axis in ("HEIGHT", "WIDTH", "DEPTH"))
        accesses: list[Access] = []
        macs = 0
        if kind == "ELEMENTWISE":
            accesses += self._operands(mode, (height, width, depth))
        else:
            if kind == "POOL" and mode not in POOLS[self.family]:
                raise self._refused(f"POOL of mode {mode} is not counted; accepted: {POOLS[self.family]}")
            if kind == "CONV" and mode & 1:
                raise self._refused("CONV with weights from IFM2 is not counted")
            rows, kernel_height = self._axis("HEIGHT", "Y", height, "TOP", "BOTTOM")
            columns, kernel_width = self._axis("WIDTH", "X", width, "LEFT", "RIGHT")
            over_channels = kind == "CONV" or (kind == "POOL" and mode == REDUCE_SUM)
            channels = self["IFM_DEPTH_M1"] + 1 if over_channels else depth
            accesses += self._map("IFM", (rows, columns, channels))
            macs = height * width * depth * kernel_height * kernel_width
            macs *= channels if over_channels else 1
            if kind != "POOL":
                weights = self["WEIGHT_LENGTH"] + sum(self.values.get(name, 0) for name in OTHER_WEIGHTS)
                accesses.append(Access("weights", self["WEIGHT_REGION"], weights))
            if self._scales_by_channel(kind):
                scales = self["SCALE_LENGTH"] + self.values.get("SCALE1_LENGTH", 0)
                accesses.append(Access("scales", self["SCALE_REGION"], scales))
        accesses += self._map("OFM", (height, width, depth))
        return Operation(self.offset, kind, tuple(accesses), macs)

    def _copy(self) -> Operation:
        source, target = self["DMA0_SRC_REGION"], self["DMA0_DST_REGION"]
        if (source | target) >> 11 & 1:
            raise self._refused("DMA by an index (gather, scatter) is not counted")
        size = self["DMA0_LEN"]
        for axis in range(source >> 9 & 3):  # rows of a copy in 2 dimensions, planes of one in 3
            size *= self[f"DMA0_SIZE{axis}"]
        accesses = [
            Access(purpose, region & 0xFF, size)
            for purpose, region in (("copy read", source), ("copy write", target))
            if not region >> 8 & 1  # internal memory, such as that of lookup tables
        ]
        return Operation(self.offset, "DMA_START", tuple(accesses))

    def _operands(self, mode: int, shape: tuple[int, int, int]) -> Iterator[Access]:
        """Inputs of an elementwise operation, smaller than its output along axes of broadcast."""
        for name in ("IFM",) if mode in UNARY else ("IFM", "IFM2"):
            if name == "IFM" and self.family != "u85":
                broadcast = 0
            else:
                broadcast = self[f"{name}_BROADCAST"]
            if broadcast & SCALAR[self.family]:
                continue
            bits = (BROADCAST_HEIGHT, BROADCAST_WIDTH, BROADCAST_DEPTH)
            height, width, depth = (
                1 if broadcast & bit else size for bit, size in zip(bits, shape, strict=True)
            )
            if name == "IFM" and self.values.get("IFM_UPSCALE", NO_UPSCALE) != NO_UPSCALE:
                height, width = -(-height // 2), -(-width // 2)
            yield from self._map(name, (height, width, depth))

    def _axis(self, size: str, axis: str, outputs: int, before: str, after: str) -> tuple[int, int]:
        """Positions of the input that an operation uses along one axis; taps of its kernel."""
        bits = {"X": (0, 6, 3), "Y": (1, 9, 4)}[axis]
        low, high, dilated = (self["KERNEL_STRIDE"] >> bit for bit in bits)
        stride = 1 + (low & 1) + 2 * (high & (1 if self.family == "u85" else 7))
        dilation = 1 + (dilated & 1)
        reach = self[f"KERNEL_{size}_M1"]
        taps = reach // dilation + 1
        padding = self[f"IFM_PAD_{before}"], self[f"IFM_PAD_{after}"]
        extent = (outputs - 1) * stride + reach + 1 - sum(padding)
        if extent <= 0:
            raise self._refused(f"padding {padding} leaves no input for {outputs} outputs along {axis}")
        positions = {
            output * stride + tap * dilation - padding[0] for output in range(outputs) for tap in range(taps)
        }
        positions = {position for position in positions if 0 <= position < extent}
        upscale = self.values.get("IFM_UPSCALE", NO_UPSCALE)
        if upscale == NEAREST:
            positions = {position // 2 for position in positions}
        elif upscale == ZEROS:
            positions = {position for position in positions if position % 2 == 0}
        return len(positions), taps

    def _map(self, name: str, shape: tuple[int, int, int]) -> Iterator[Access]:
        """The access to a map, none where it is passed on inside the accelerator (U85's chaining)."""
        precision = self[f"{name}_PRECISION"]
        if self.family == "u85" and precision >> 14 & 3 >= 2:
            return
        element_bytes = 1 << (precision >> (1 if name == "OFM" else 2) & 3)
        area = FeatureMap(
            *shape,
            element_bytes,
            bricks=precision >> 6 & 3 == 1,
            bases=tuple(self[f"{name}_BASE{tile}"] for tile in range(4)),
            tile_width=self[f"{name}_WIDTH0_M1"] + 1,
            tile_heights=(self[f"{name}_HEIGHT0_M1"] + 1, self[f"{name}_HEIGHT1_M1"] + 1),
            strides=(self[f"{name}_STRIDE_Y"], self[f"{name}_STRIDE_X"], self[f"{name}_STRIDE_C"]),
        )
        purpose = "map write" if name == "OFM" else "map read"
        yield Access(purpose, self[f"{name}_REGION"], area.bytes, area)

    def _scales_by_channel(self, kind: str) -> bool:
        """Whether an operation reads scales and biases: U85's say so, of the others convolutions do."""
        if self.family == "u85":
            return not self["OFM_PRECISION"] >> 8 & 1
        return kind != "POOL"

    def _refused(self, reason: str) -> StreamError:
        return StreamError(f"command stream, operation at byte {self.offset:#x}: {reason}")


if __name__ == "__main__":
    main()
