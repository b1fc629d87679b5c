"""Run a program on the simulated accelerator: what it did to DRAM, what it counted, how it ended."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hw_rtl.build import SimulationModel
from lfopt.isa.registers import Register
from lfopt.isa.tables import BEAT_BYTES, WORD_BYTES, Counter, Error, Queue

WATCHDOG_CYCLES = Register.WATCHDOG.of.reset or 0  # far longer than anything that moves stands still
MIN_ALIGNMENT = 4096  # bytes, of a program that is put behind the memory


class SimulationFailed(RuntimeError):
    """The simulation itself went wrong, not the program."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Error with which the accelerator stopped before HALT."""

    code: Error
    queue: Queue  # who found it
    index: int  # commands of that queue before the one at fault; of the sequencer: words that it ran before


@dataclass(frozen=True, slots=True)
class Dram:
    """Behaviour of the simulated DRAM."""

    latency_cycles: int = 40  # of every request
    stall: int = 0  # cycles of 256, on average, in which each channel holds back
    seed: int = 1  # of the stalls
    fault: int | None = None  # address whose beat is answered with an error
    silent: int | None = None  # beats read after which nothing moves any more
    lost: int | None = None  # number of a write, from 0 on, whose response never comes


class CommandTime(NamedTuple):
    """Times of one command of a run, in cycles."""

    queue: Queue
    start: int
    end: int  # its queue has ended with it before this cycle


@dataclass(frozen=True, slots=True)
class RunResult:
    """Outcome of a run."""

    memory: np.ndarray  # DRAM afterwards, uint8; as long as the image
    counters: Mapping[Counter, int]
    failure: Failure | None  # None: it came to HALT
    finished: bool  # False: the limit of cycles came first
    cycles: int  # from start to done
    # that were finished, in that order; none unless they were asked for
    commands: tuple[CommandTime, ...] = ()


def run(
    model: SimulationModel,
    program: bytes,
    memory: np.ndarray,
    *,
    program_address: int | None = None,
    read_region: tuple[int, int] | None = None,
    write_region: tuple[int, int] | None = None,
    watchdog_cycles: int = WATCHDOG_CYCLES,
    bound_cycles: int = 0,
    limit_cycles: int | None = None,
    dram: Dram | None = None,
    unknown: int | None = None,
    timed: bool = False,
    progress: Callable[[int], None] | None = None,
) -> RunResult:
    """Run a program on a DRAM image, memory (bytes,) uint8, which stays as it is; the result has its own.

    The program lies at `program_address` of the memory; None puts it behind the image, where the result does
    not show it. Regions are (first byte, first byte behind) that may be read, or written: all of the image
    unless said; a program behind it may be read in any case. The hardware stops the program after
    `bound_cycles` (0: never), the simulation stops after `limit_cycles`. `unknown`: seed of the bits with
    which registers begin, of a model that has Parameters.unknown. `timed`: the result says when each command
    ran. `progress` is told the cycles that have passed, now and then. Raises SimulationFailed, and ValueError
    where the memory is not (bytes,) uint8 or the program is not in whole words.
    """
    if memory.dtype != np.uint8 or memory.ndim != 1 or len(program) % WORD_BYTES:
        raise ValueError(
            f"found a memory {memory.dtype}{list(memory.shape)}, a program of {len(program)} bytes; "
            f"accepted: uint8, words of {WORD_BYTES}"
        )
    dram = dram or Dram()
    address = -(-memory.size // MIN_ALIGNMENT) * MIN_ALIGNMENT if program_address is None else program_address
    image = np.zeros(-(-max(memory.size, address + len(program)) // BEAT_BYTES) * BEAT_BYTES, np.uint8)
    if image.size > model.parameters.dram_beats * BEAT_BYTES:
        raise ValueError(
            f"found {image.size} bytes of memory; accepted: up to "
            f"{model.parameters.dram_beats * BEAT_BYTES}, see Parameters.dram_beats"
        )
    image[: memory.size] = memory
    image[address : address + len(program)] = np.frombuffer(program, np.uint8)
    read_first, read_limit = read_region or (0, image.size)
    write_first, write_limit = write_region or (0, memory.size)
    registers = {
        Register.PROGRAM_ADDRESS: address, Register.PROGRAM_WORDS: len(program) // WORD_BYTES,
        Register.READ_BASE: read_first,
        Register.READ_LIMIT: read_limit, Register.WRITE_BASE: write_first, Register.WRITE_LIMIT: write_limit,
        Register.WATCHDOG: watchdog_cycles,
        Register.CYCLE_LIMIT: bound_cycles,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        before, after, times = (Path(folder) / name for name in ("before.bin", "after.bin", "commands.txt"))
        image.tofile(before)
        arguments = [
            *(f"{register.name.lower()}={value}" for register, value in registers.items()),
            *([] if limit_cycles is None else [f"limit={limit_cycles}"]),
            f"+dram={before}",
            f"+dump={after}",
            f"+bytes={image.size}",
            f"+latency={dram.latency_cycles}",
            f"+stall={dram.stall}",
            f"+seed={dram.seed}",
            *([] if dram.fault is None else [f"+fault={dram.fault}"]),
            *([] if dram.silent is None else [f"+silent={dram.silent}"]),
            *([] if dram.lost is None else [f"+lost={dram.lost}"]),
            *([f"+commands={times}"] if timed else []),
            *([] if unknown is None else ["+verilator+rand+reset+2", f"+verilator+seed+{unknown}"]),
        ]
        output = _simulated([str(model.program), *arguments], progress)
        if not after.exists():
            raise SimulationFailed(f"{model.program} wrote no memory: {output[-1000:]}")
        left = np.fromfile(after, np.uint8)[: memory.size]
        ran = tuple(_ran(times)) if timed else ()
    return _result(output, left, ran)


def _simulated(command: list[str], progress: Callable[[int], None] | None) -> str:
    """Output of the harness on stdout; its stderr has lines `cycle N`, and errors.

    Raises SimulationFailed where it ends with an error.
    """
    lines: list[str] = []
    with tempfile.TemporaryFile("w+") as printed:  # no pipe, which could fill while stderr is read
        with subprocess.Popen(command, stdout=printed, stderr=subprocess.PIPE, text=True) as running:  # noqa: S603 (our own program)
            assert running.stderr is not None
            for line in running.stderr:
                word, _, cycles = line.strip().partition(" ")
                if word != "cycle":
                    lines.append(line)
                elif progress is not None:
                    progress(int(cycles))
        printed.seek(0)
        output = printed.read()
    if running.returncode:
        raise SimulationFailed(
            f"{command[0]} ends with {running.returncode}: {''.join(lines)[-1000:]}{output[-1000:]}"
        )
    return output


def _ran(times: Path) -> Iterator[CommandTime]:
    """Times of commands, from the lines of lf_trace.sv."""
    with times.open() as lines:
        for line in lines:
            queue, start, end = map(int, line.split())
            yield CommandTime(Queue(queue), start, end)


def _result(output: str, memory: np.ndarray, commands: tuple[CommandTime, ...]) -> RunResult:
    """RunResult of the harness's output, a line of JSON."""
    summary = json.loads(output.strip().splitlines()[-1])
    status = Register.STATUS.layout.unpack(summary["status"])
    error = Register.ERROR.layout.unpack(summary["error"])
    counters = {counter: summary["counters"][counter] for counter in Counter}
    if status["failed"]:
        failure = Failure(Error(error["code"]), Queue(error["queue"]), summary["error_index"])
    else:
        failure = None
    return RunResult(memory, counters, failure, bool(status["done"]), counters[Counter.CYCLES], commands)
