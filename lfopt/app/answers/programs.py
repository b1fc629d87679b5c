"""What commands say that let a plan run: in NumPy, as C, in RTL."""

from __future__ import annotations

from dataclasses import dataclass

from lfopt.app.agreement import Agreement
from lfopt.app.answers.files import FileAnswer
from lfopt.ir import NO_L2, DramBytes, EnergyUse, L2Bytes


@dataclass(frozen=True, slots=True)
class ExecuteAnswer:
    """`lfopt execute`."""

    planned: DramBytes
    counted: DramBytes
    not_executed: DramBytes  # of groups that have no steps
    groups: int
    steps: int
    peak_bytes: int  # of the buffer
    weight_peak_bytes: int  # of the weight buffer, where the chip has one
    compared: bool  # outputs, with those of the judges
    wrong: tuple[str, ...]
    agreements: tuple[Agreement, ...]  # none where they were not compared
    l2_planned: L2Bytes = NO_L2  # between the buffer and the second level
    l2_counted: L2Bytes = NO_L2
    judges: tuple[str, ...] = ()  # whose outputs they were compared with
    not_judged: str = ""  # why ONNX Runtime is no judge; "" where it is, or nothing was compared


@dataclass(frozen=True, slots=True)
class OutputAnswer:
    """A tensor that a network gave."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    least: float | None  # null where it is empty, or no real number
    mean: float | None
    largest: float | None


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A fusion group as generated code runs it."""

    group: int
    operators: tuple[str, ...]
    seconds: float  # the fastest of a few runs
    flops: int  # of multiply-adds, two each; other operators take time alone
    dram_bytes: int  # that the plan moves: inputs, outputs, weights


@dataclass(frozen=True, slots=True)
class Roofline:
    """All groups of a network, in the order in which they run, beside what the machine can do."""

    peak_flops: float  # multiply-adds of all threads, two operations each, a second: measured
    kernels: tuple[KernelTime, ...]
    images: int = 1  # that the network takes one at a time; the groups' figures are of one
    integers: bool = False  # whether operations are those of a quantised network, on bytes


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """`lfopt run`."""

    outputs: tuple[OutputAnswer, ...]
    found_compiled: bool
    folder: str  # of what was compiled
    compile_seconds: float
    run_seconds: float  # of the first run
    compared: bool  # with the judges' outputs
    wrong: tuple[str, ...]
    agreements: tuple[Agreement, ...]  # none where they were not compared
    roofline: Roofline | None = None  # where it was asked for
    judges: tuple[str, ...] = ()  # whose outputs they were compared with
    not_judged: str = ""  # why ONNX Runtime is no judge; "" where it is, or nothing was compared


@dataclass(frozen=True, slots=True)
class KernelAnswer:
    """The kernel of some operators, with `lfopt codegen --why`."""

    group: int
    operators: tuple[str, ...]
    kernel: str
    refused: dict[str, str]  # kernels that were asked before, and why they did not take the first operator


@dataclass(frozen=True, slots=True)
class CodegenAnswer:
    """`lfopt codegen`."""

    name: str
    target: str
    groups: int
    files: tuple[FileAnswer, ...]
    arena_bytes: int | None = None  # of C: all arenas
    context_bytes: int | None = None  # of C: memory of one caller
    plain_loops: dict[str, str] | None = None  # of C: operators that are slow, and why
    commands: int | None = None  # of a command stream
    instruction_bytes: int | None = None  # of a command stream
    schedule: tuple[str, ...] | None = None  # of C, with --list: what its threads run, line by line
    weights_bytes: int | None = None  # of C
    code_bytes: int | None = None  # of C, with --build: machine code of the library
    # of C, with --why: for every operator, in the order in which groups run
    kernels: tuple[KernelAnswer, ...] | None = None


@dataclass(frozen=True, slots=True)
class RtlAnswer:
    """`lfopt rtl run`."""

    planned: DramBytes
    counted: DramBytes  # at the memory port
    cycles: int
    predicted_cycles: int
    predicted_energy: EnergyUse
    counters: dict[str, int]  # of the hardware
    compared: bool  # outputs, with the reference
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """Something that is kept between runs."""

    kind: str
    network: str
    target: str
    size_bytes: int
    age_seconds: float  # since it was used
    damage: str  # empty where it is whole


@dataclass(frozen=True, slots=True)
class CacheAnswer:
    """`lfopt cache`."""

    folder: str
    items: tuple[ItemAnswer, ...]  # that are there
    removed: tuple[ItemAnswer, ...] = ()
