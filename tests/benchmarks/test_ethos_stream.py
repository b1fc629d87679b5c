"""Bytes that command streams of Ethos-U name: of streams made by hand, and of Vela where it is installed."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ethos_stream import (
    BRICK,
    OPERATIONS,
    REGISTERS,
    FeatureMap,
    StreamError,
    commands,
    count,
    operations,
    payloads,
    unpacked,
)
from benchmarks.tflite import flatbuffer
from lfopt.ir import Graph, Operator, Quantization, Tensor

CODES = {name: code for code, name in OPERATIONS.items()}
CONSTANTS, ARENA, FAST = range(3)
SIGNED = 1
# A convolution of 3 x 3, stride 1, padded on all sides, from 8 x 8 x 3 to 8 x 8 x 16
CONVOLUTION = {
    "OFM_HEIGHT_M1": 7, "OFM_WIDTH_M1": 7, "OFM_DEPTH_M1": 15, "OFM_PRECISION": SIGNED, "OFM_REGION": FAST,
    "IFM_DEPTH_M1": 2, "IFM_PRECISION": SIGNED, "IFM_REGION": ARENA, "IFM_UPSCALE": 0,
    "IFM_PAD_TOP": 1, "IFM_PAD_BOTTOM": 1, "IFM_PAD_LEFT": 1, "IFM_PAD_RIGHT": 1,
    "KERNEL_HEIGHT_M1": 2, "KERNEL_WIDTH_M1": 2, "KERNEL_STRIDE": 0,
    "WEIGHT_REGION": CONSTANTS, "WEIGHT_LENGTH": 400, "SCALE_REGION": CONSTANTS, "SCALE_LENGTH": 160,
}  # fmt: skip
TILES = {
    f"{name}_{field}": value
    for name in ("IFM", "IFM2", "OFM")
    for field, value in {
        "BASE0": 0, "BASE1": 0, "BASE2": 0, "BASE3": 0, "WIDTH0_M1": 99, "HEIGHT0_M1": 99, "HEIGHT1_M1": 99,
        "STRIDE_X": 1, "STRIDE_Y": 1, "STRIDE_C": 1,
    }.items()
}  # fmt: skip
SUM = CONVOLUTION | {"IFM2_PRECISION": SIGNED, "IFM2_REGION": ARENA, "IFM2_BROADCAST": 0}
U85 = {"ACC_FORMAT": 0x200, "IFM_BROADCAST": 0}


def stream(family: str, operation: str, mode: int = 0, **registers: int) -> list[int]:
    """Words that set registers, start one operation and stop."""
    narrow, wide = ({name: code for code, name in rows.items()} for rows in REGISTERS[family])
    words: list[int] = []
    for name, value in {**TILES, **registers}.items():
        if name in narrow:
            words.append(narrow[name] | value << 16)
        else:
            words += [wide[name] | 0x4000 | value >> 32 << 16, value & 0xFFFFFFFF]
    return [*words, CODES[operation] | mode << 16, CODES["STOP"] | 0xFFFF << 16]


def named(family: str, operation: str, mode: int = 0, **registers: int) -> dict[tuple[str, int], int]:
    """Bytes by purpose and region of the one operation."""
    words = stream(family, operation, mode, **registers)
    (only,) = operations(words, family)
    return dict(Counter({(access.purpose, access.region): access.bytes for access in only.accesses}))


def payload(words: Sequence[int], product: int = 1, length: int | None = None) -> bytes:
    """Header for the driver, and the stream."""
    announced = len(words) if length is None else length
    head = (0x31504F43, 1, product << 28, 0, 5, (announced & 0xFFFF) << 16 | announced >> 16 << 8 | 2)
    return struct.pack(f"<{len(head) + len(words)}I", *head, *words)


def test_a_convolution_names_its_maps_weights_and_scales() -> None:
    assert named("u55", "CONV", **CONVOLUTION) == {
        ("map read", ARENA): 8 * 8 * 3,
        ("weights", CONSTANTS): 400,
        ("scales", CONSTANTS): 160,
        ("map write", FAST): 8 * 8 * 16,
    }


def test_multiply_accumulates_are_those_of_the_kernel() -> None:
    (dense,) = operations(stream("u55", "CONV", **CONVOLUTION), "u55")
    (depthwise,) = operations(stream("u55", "DEPTHWISE", **CONVOLUTION), "u55")
    assert (dense.macs, depthwise.macs) == (8 * 8 * 16 * 9 * 3, 8 * 8 * 16 * 9)


def test_both_cores_read_weights_and_scales() -> None:
    second = {"WEIGHT1_LENGTH": 320, "SCALE1_LENGTH": 80}
    both = named("u65", "CONV", **CONVOLUTION, **second)
    assert (both["weights", CONSTANTS], both["scales", CONSTANTS]) == (720, 240)


def test_u85_reads_weights_for_four_decoders_and_scales_where_they_differ_by_channel() -> None:
    more = {"WEIGHT1_LENGTH": 16, "WEIGHT2_LENGTH": 32, "WEIGHT3_LENGTH": 48}
    every = named("u85", "CONV", **CONVOLUTION, **U85, **more)
    assert (every["weights", CONSTANTS], every["scales", CONSTANTS]) == (496, 160)
    one_scale = CONVOLUTION | U85 | {"OFM_PRECISION": SIGNED | 1 << 8}
    assert ("scales", CONSTANTS) not in named("u85", "CONV", **one_scale)


@pytest.mark.parametrize(
    ("rows", "columns", "changed"),
    [
        (10, 10, {"IFM_PAD_TOP": 0, "IFM_PAD_BOTTOM": 0, "IFM_PAD_LEFT": 0, "IFM_PAD_RIGHT": 0}),
        (9, 8, {"IFM_PAD_TOP": 0}),
        # stride 2 x 2: the last row and column lie in the padding
        (15, 15, {"KERNEL_STRIDE": 0b11}),
        # stride 3 x 5, which needs the upper bits: rows between the kernels are not used
        (3 * 8 - 2, 8 * 3 - 2, {"KERNEL_STRIDE": 1 << 9 | 2 << 6}),
        # dilation 2 x 2 of 3 x 3 taps
        (10, 10, {"KERNEL_STRIDE": 0b11000, "KERNEL_HEIGHT_M1": 4, "KERNEL_WIDTH_M1": 4}),
        # 1 x 1, stride 2: every second row and column
        (8, 8, {"KERNEL_STRIDE": 0b11, "KERNEL_HEIGHT_M1": 0, "KERNEL_WIDTH_M1": 0}
         | dict.fromkeys(("IFM_PAD_TOP", "IFM_PAD_BOTTOM", "IFM_PAD_LEFT", "IFM_PAD_RIGHT"), 0)),
        # a map of 4 x 4, doubled in both axes
        (4, 4, {"IFM_UPSCALE": 1}),
        (4, 4, {"IFM_UPSCALE": 2}),
    ],
)  # fmt: skip
def test_rows_and_columns_follow_from_the_kernel(rows: int, columns: int, changed: dict[str, int]) -> None:
    assert named("u55", "CONV", **CONVOLUTION | changed)["map read", ARENA] == rows * columns * 3


def test_a_pool_reads_the_channels_of_its_result_and_a_sum_over_channels_reads_all() -> None:
    assert named("u65", "POOL", 0, **CONVOLUTION)["map read", ARENA] == 8 * 8 * 16
    summed = CONVOLUTION | {"OFM_DEPTH_M1": 0, "IFM_DEPTH_M1": 31}
    assert named("u65", "POOL", 2, **summed)["map read", ARENA] == 8 * 8 * 32


def test_a_pool_reads_neither_weights_nor_scales() -> None:
    assert {purpose for purpose, _ in named("u65", "POOL", 0, **CONVOLUTION)} == {"map read", "map write"}


def test_elements_have_the_size_of_their_own_map() -> None:
    wide = CONVOLUTION | {"IFM_PRECISION": SIGNED | 1 << 2, "OFM_PRECISION": SIGNED | 2 << 1}
    moved = named("u55", "CONV", **wide)
    assert (moved["map read", ARENA], moved["map write", FAST]) == (2 * 8 * 8 * 3, 4 * 8 * 8 * 16)


@pytest.mark.parametrize(
    ("family", "broadcast", "elements"),
    [
        ("u55", 0, 8 * 8 * 16),
        ("u55", 1, 8 * 16),
        ("u55", 2, 8 * 16),
        ("u55", 4, 8 * 8),
        ("u55", 3, 16),
        ("u55", 1 << 7, 0),
        ("u85", 7, 1),
        ("u85", 8, 0),
    ],
)
def test_a_broadcast_operand_is_read_once_and_a_scalar_not_at_all(
    family: str, broadcast: int, elements: int
) -> None:
    registers = SUM | {"IFM2_REGION": CONSTANTS, "IFM2_BROADCAST": broadcast}
    moved = named(family, "ELEMENTWISE", 1, **registers | (U85 if family == "u85" else {}))
    assert moved.get(("map read", CONSTANTS), 0) == elements
    assert moved["map read", ARENA] == 8 * 8 * 16


def test_only_u85_broadcasts_the_first_operand() -> None:
    moved = named("u85", "ELEMENTWISE", 1, **SUM | U85 | {"IFM_BROADCAST": 3, "IFM_REGION": CONSTANTS})
    assert (moved["map read", CONSTANTS], moved["map read", ARENA]) == (16, 8 * 8 * 16)


@pytest.mark.parametrize("mode", [5, 6, 7])
def test_an_operation_of_one_operand_reads_one(mode: int) -> None:
    assert named("u55", "ELEMENTWISE", mode, **SUM | {"IFM2_REGION": CONSTANTS}) == {
        ("map read", ARENA): 8 * 8 * 16,
        ("map write", FAST): 8 * 8 * 16,
    }


def test_maps_that_are_chained_inside_u85_are_not_counted() -> None:
    chained, absent = 2 << 14, 3 << 14
    moved = named("u85", "ELEMENTWISE", 1, **SUM | U85 | {"IFM_PRECISION": SIGNED | chained,
                                                          "OFM_PRECISION": SIGNED | absent})  # fmt: skip
    assert moved == {("map read", ARENA): 8 * 8 * 16}


@pytest.mark.parametrize(("stride_mode", "size"), [(0, 100), (1, 700), (2, 2100)])
def test_a_copy_names_both_sides_in_one_to_three_dimensions(stride_mode: int, size: int) -> None:
    registers = {
        "DMA0_SRC_REGION": ARENA | stride_mode << 9, "DMA0_DST_REGION": FAST, "DMA0_LEN": 100,
        "DMA0_SIZE0": 7, "DMA0_SIZE1": 3,
    }  # fmt: skip
    assert named("u85", "DMA_START", **registers) == {("copy read", ARENA): size, ("copy write", FAST): size}


def test_a_table_is_copied_to_internal_memory() -> None:
    registers = {"DMA0_SRC_REGION": CONSTANTS, "DMA0_DST_REGION": 1 << 8 | 3, "DMA0_LEN": 256}
    assert named("u65", "DMA_START", **registers) == {("copy read", CONSTANTS): 256}


def test_addresses_have_more_than_32_bits() -> None:
    words = stream("u65", "CONV", **CONVOLUTION | {"IFM_BASE2": 5 << 32 | 7})
    (only,) = operations(words, "u65")
    assert only.accesses[0].map is not None and only.accesses[0].map.bases[2] == 5 << 32 | 7


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"COP1abc", "payload of 7 bytes; accepted: words of 4 bytes"),
        (b"COP2" + bytes(8), "payload, byte 0: b'COP2'; accepted: COP1"),
        (payload([0], product=3), "payload, byte 0x4: product 3; accepted: 0 (U55), 1 (U65), 2 (U85)"),
        (payload([0], length=9), "payload, byte 0x14: 9 words announced, 1 follow"),
        (payload([0])[:12], "payload, byte 0x4: configuration of 1 words; accepted: 2"),
        (b"COP1" + struct.pack("<I", 9), "payload, byte 0x4: driver action 9; accepted: 1, 2 and 5"),
        (b"COP1" + struct.pack("<I", 5), "payload of 8 bytes holds no command stream"),
        (
            b"COP1" + struct.pack("<I", 2),
            "payload, byte 0x4: no configuration stands before the command stream",
        ),
    ],
)
def test_a_damaged_payload_is_one_line_that_says_where(content: bytes, message: str) -> None:
    with pytest.raises(StreamError, match=re.escape(message)):
        unpacked(content)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([0x1FF], "command stream, byte 0x0: command 0x01ff is not counted for U65; accepted: "),
        ([0x12E], "command stream, byte 0x0: command 0x012e is not counted for U65; accepted: "),
        ([0x8100], "command stream, byte 0x0: command 0x8100 is not counted for U65; accepted: "),
        ([0x100, 0x4020], "command stream, byte 0x4: the word after 0x4020 is missing"),
        ([0x100, 2], "operation at byte 0x4: register OFM_HEIGHT_M1 is used before it is set"),
        ([0x100], "command stream of 4 bytes does not end with STOP"),
        ([0, 0x100], "command stream, byte 0x4: IFM_PAD_TOP after STOP"),
        (stream("u65", "POOL", 4, **CONVOLUTION), "POOL of mode 4 is not counted; accepted: (0, 1, 2)"),
        (
            stream("u65", "CONV", **CONVOLUTION | {"IFM_PAD_TOP": 40}),
            "padding (40, 1) leaves no input for 8 outputs along Y",
        ),
    ],
)
def test_a_stream_that_is_not_understood_is_refused(words: list[int], message: str) -> None:
    with pytest.raises(StreamError, match=re.escape(message)):
        list(operations(words, "u65"))


def test_what_u85_has_and_is_not_counted_is_refused() -> None:
    for operation, mode, changed, message in (
        ("CONV", 1, {}, "weights from IFM2"),
        ("CONV", 0, {"ACC_FORMAT": 2 << 4}, "accumulators that start from IFM2"),
        ("DMA_START", 0, {"DMA0_SRC_REGION": 1 << 11, "DMA0_DST_REGION": 2}, "DMA by an index"),
    ):
        words = stream("u85", operation, mode, **CONVOLUTION | U85 | changed)
        with pytest.raises(StreamError, match=message):
            list(operations(words, "u85"))


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(StreamError, match="accepted: TFL3"):
        count(b"not a network")


# -- beside Vela ---------------------------------------------------------------------------------------------

needs_vela = pytest.mark.skipif(find_spec("ethosu") is None, reason="needs lfopt[vela]")
SYSTEMS = {"u55": "Ethos_U65_High_End", "u65": "Ethos_U65_High_End", "u85": "Ethos_U85_SYS_DRAM_Low"}
LEGACY = "--debug-force-legacy-core"
SIZE = 24  # rows and columns of the input
SUMMARY = re.compile(r"^Neural network macs +(\d+)", re.MULTILINE)


def small_network() -> Graph:
    """Dense and depthwise convolutions, a residual sum and a pool, in int8."""
    rows = (  # name, kind, inputs, channels, extent, kernel, stride, groups
        ("stem", "Conv", ("x",), 16, 12, 3, 2, 1),
        ("depthwise", "Conv", ("stem",), 16, 12, 3, 1, 16),
        ("project", "Conv", ("depthwise",), 16, 12, 1, 1, 1),
        ("sum", "Add", ("project", "stem"), 16, 12, 1, 1, 1),
        ("pool", "MaxPool", ("sum",), 16, 6, 2, 2, 1),
        ("last", "Conv", ("pool",), 8, 3, 3, 2, 1),
    )
    rng = np.random.default_rng(0)
    scale = Quantization((0.05,), (0,))
    tensors = {"x": Tensor("x", (1, 3, SIZE, SIZE), "int8", scale)}
    constants: dict[str, np.ndarray | None] = {}
    chain: list[Operator] = []
    for name, kind, inputs, channels, extent, kernel, stride, groups in rows:
        tensors[name] = Tensor(name, (1, channels, extent, extent), "int8", scale)
        before = tensors[inputs[0]].shape
        reach = max((extent - 1) * stride + kernel - int(before[2]), 0)
        pads = (reach // 2, reach // 2, reach - reach // 2, reach - reach // 2)
        attributes = {"strides": (stride, stride), "pads": pads, "group": groups}
        if kind == "MaxPool":
            attributes["kernel_shape"] = (kernel, kernel)
        if kind == "Conv":
            weights = rng.integers(-127, 128, (channels, int(before[1]) // groups, kernel, kernel))
            values = {f"{name}.w": weights.astype(np.int8), f"{name}.b": np.zeros(channels, np.int32)}
            by_channel = Quantization((0.01,) * channels, (0,) * channels, 0)
            for constant, array in values.items():
                tensors[constant] = Tensor(constant, array.shape, str(array.dtype), by_channel)
            constants |= values
            inputs = (*inputs, *values)
        chain.append(Operator(name, kind, inputs, (name,), attributes if kind != "Add" else {}))
    return Graph("small", tuple(chain), tensors, constants, ("x",), ("last",), 21)


def compiled(folder: Path, accelerator: str, *options: str) -> tuple[bytes, str]:
    """The file that Vela writes, and what it prints."""
    source = folder / "small.tflite"
    source.write_bytes(flatbuffer(small_network()))
    system = SYSTEMS[accelerator.split("-")[1]]
    command = [
        sys.executable, "-m", "ethosu.vela", "--accelerator-config", accelerator, "--config", "Arm/vela.ini",
        "--system-config", system, "--memory-mode", "Dedicated_Sram", "--arena-cache-size", "6144",
        "--verbose-register-command-stream", "--output-dir", str(folder), *options, str(source),
    ]  # fmt: skip
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return (folder / "small_vela.tflite").read_bytes(), printed


def addresses(area: FeatureMap) -> np.ndarray:
    """Every byte of a map, from its four tiles."""
    y, x, c = np.ogrid[: area.height, : area.width, : area.depth]
    right = x >= area.tile_width
    below = y >= np.where(right, area.tile_heights[1], area.tile_heights[0])
    row = y - below * np.where(right, area.tile_heights[1], area.tile_heights[0])
    column = x - right * area.tile_width
    stride_y, stride_x, stride_c = area.strides
    start = np.choose(2 * below + right, area.bases) + row * stride_y
    if area.bricks:
        start = start + column * BRICK * area.element_bytes + c // BRICK * stride_c
        start = start + c % BRICK * area.element_bytes
    else:
        start = start + column * stride_x + c * area.element_bytes
    return (start[..., None] + np.arange(area.element_bytes)).ravel()


@needs_vela
def test_registers_have_the_names_of_velas_own_definitions() -> None:
    definitions = import_module("ethosu.vela.ethos_u55_regs.ethos_u55_regs")
    narrow, wide = REGISTERS["u65"]
    every = {f"NPU_OP_{name}": code for code, name in OPERATIONS.items()}
    every |= {f"NPU_SET_{name}": code for code, name in narrow.items()}
    assert {member.name: member.value for member in definitions.cmd0} == every
    assert {member.name: member.value for member in definitions.cmd1} == {
        f"NPU_SET_{name}": code for code, name in wide.items()
    }


@needs_vela
@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-512"])
def test_commands_are_those_that_vela_prints(tmp_path: Path, accelerator: str) -> None:
    model, printed = compiled(tmp_path, accelerator)
    lines = re.findall(r"^0x(\w+): .* - NPU_(?:OP|SET)_(\w+) +(\d+)", printed, re.MULTILINE)
    ((family, words),) = (unpacked(one) for one in payloads(model))
    decoded = [
        (one.offset, one.name, one.value & 0xFFFF if one.starts else None) for one in commands(words, family)
    ]
    assert lines and decoded == [
        (int(offset, 16), name, int(value) if name in CODES else None) for offset, name, value in lines
    ]


@needs_vela
@pytest.mark.parametrize(
    ("accelerator", "core"),
    [
        ("ethos-u55-128", ""), ("ethos-u55-128", LEGACY), ("ethos-u65-512", ""), ("ethos-u65-512", LEGACY),
        ("ethos-u85-128", ""), ("ethos-u85-2048", ""),
    ],
)  # fmt: skip
def test_every_byte_is_written_once_before_it_is_read(tmp_path: Path, accelerator: str, core: str) -> None:
    """Maps that are counted are whole: nothing is read that was not written but the input, nothing is left
    unread but the output, and Vela counts the same multiply-accumulates.
    """
    model, printed = compiled(tmp_path, accelerator, *filter(None, [core]))
    written, unread, given = (set[tuple[int, int]]() for _ in range(3))
    for payload_ in payloads(model):
        family, words = unpacked(payload_)
        for operation in operations(words, family):
            for access in operation.accesses:
                if access.map is None or access.region == CONSTANTS:
                    continue
                places = {(access.region, int(place)) for place in addresses(access.map)}
                assert len(places) == access.bytes
                if access.purpose == "map read":
                    given |= places - written
                    unread -= places
                else:
                    assert not unread & places
                    unread |= places
                    written |= places
    graph = small_network()
    assert len(given) == graph.tensors["x"].elements
    assert len(unread) == graph.tensors["last"].elements
    macs = SUMMARY.search(printed)
    assert macs is not None and count(model).macs == int(macs[1])


@needs_vela
def test_the_legacy_core_lists_the_same_bytes(tmp_path: Path) -> None:
    model, printed = compiled(tmp_path, "ethos-u65-512", LEGACY)
    listed: Counter[tuple[str, int]] = Counter()
    for kind, region, size in re.findall(
        r"^ +(IFM2?|OFM): h=.* region=(\d).* size=(\d+)", printed, re.MULTILINE
    ):
        listed["map write" if kind == "OFM" else "map read", int(region)] += int(size)
    for kind, region, size in re.findall(
        r"^ +(Weights|Scales): \(region=(\d), address=\w+, length=(\d+)", printed, re.MULTILINE
    ):
        listed[kind.lower(), int(region)] += int(size)
    for source, size, target in re.findall(
        r"^\d+ Dma .* src=\(region=(\d), address=\w+, length=(\d+)\), dest=\(region=(\d)",
        printed,
        re.MULTILINE,
    ):
        listed["copy read", int(source)] += int(size)
        listed["copy write", int(target)] += int(size)
    assert listed and listed == count(model).bytes
