"""Lines and bits of the SystemVerilog that test programs and random plans reach; kinds of computation."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich import box
from rich.table import Table

from benchmarks.results import Sheet, add_option
from codegen.accel import encode
from codegen.source import Unsupported
from hw_rtl.build import HardwareParameters, SimulationModel, compiled, design
from hw_rtl.run import Dram, run
from lfopt.app.cache import keeper
from lfopt.app.streams import run as run_stream
from lfopt.isa.program import assemble, decode, unrolled
from lfopt.isa.program import encode as to_words
from lfopt.isa.tables import Opcode, Operation, Scale
from tests.accelerator import random_plan
from tests.hw_rtl.programs import (
    COMPUTED,
    FAILURES,
    LIMIT_CYCLES,
    MEMORY_BYTES,
    WATCHDOG_CYCLES,
    WRITABLE,
    random_program,
)

POINT = re.compile(r"C '(.*)' (\d+)$")
DATA = "coverage.dat"
FINISH = "  return 0;\n}\n"  # end of the harness


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=6, help="random plans that run in RTL")
    parser.add_argument("--functional", type=int, default=200, help="random plans whose commands are counted")
    parser.add_argument("--toggle", action="store_true", help="bits that change, too; a larger simulation")
    parser.add_argument("--misses", action="store_true", help="list the lines that nothing reached")
    add_option(parser)
    arguments = parser.parse_args()
    sheet = Sheet("rtl-coverage", arguments.results)
    with tempfile.TemporaryDirectory() as folder:
        model = instrumented(Path(folder), toggle=arguments.toggle)
        report(sheet, gathered(model, arguments.plans), misses=arguments.misses)
    functional(sheet, arguments.functional)
    sheet.write()


def instrumented(folder: Path, *, toggle: bool) -> SimulationModel:
    """The simulation with counters of coverage, which it writes into the folder."""
    parameters = HardwareParameters(dram_beats=1 << 18, optimization="-O1")
    source = design(parameters).harness.read_text()
    assert FINISH in source
    harness = folder / "main.cpp"
    harness.write_text(
        source.replace(FINISH, f'  context->coveragep()->write("{folder / DATA}");\n{FINISH}').replace(
            '#include "verilated.h"', '#include "verilated.h"\n#include "verilated_cov.h"'
        )
    )
    plain = design(parameters)
    options = (*plain.options, "--coverage-line", *("--coverage-toggle",) * toggle)
    return SimulationModel(
        compiled(
            keeper(folder), replace(plain, harness=harness, options=options, compiler=("-DVM_COVERAGE=1",))
        ),
        parameters,
    )


def gathered(model: SimulationModel, plans: int) -> Counter[str]:
    """Sums over all runs of how often each point of coverage was reached."""
    data = model.program.parents[1] / DATA
    hits = Counter[str]()

    def add() -> None:
        for line in data.read_text(errors="replace").splitlines():
            if match := POINT.match(line):
                hits[match[1]] += int(match[2])

    image = np.random.default_rng(5).integers(0, 256, MEMORY_BYTES, np.uint8)
    drams = (Dram(), Dram(latency_cycles=1), Dram(latency_cycles=90, stall=120))
    programs = [to_words(random_program(seed, image)[0]) for seed in range(30)] + [
        to_words(assemble(COMPUTED.splitlines()))
    ] * 3
    programs += [to_words(assemble((*lines.splitlines(), "halt"))) for lines in FAILURES]
    for k, program in enumerate(programs):
        run(
            model,
            program,
            image,
            write_region=WRITABLE,
            watchdog_cycles=WATCHDOG_CYCLES,
            limit_cycles=LIMIT_CYCLES,
            dram=drams[k % 3],
        )
        add()
    for k, (stream, inputs) in enumerate(streams(plans)):
        run_stream(model, stream, inputs, dram=drams[k % 3])
        add()
    return hits


def streams(number: int) -> Iterator[tuple]:
    """So many random plans as command streams, with inputs."""
    seed = 0
    while number:
        plan, graph, inputs = random_plan(seed)
        seed += 1
        if any(group.unexecutable for group in plan.groups):
            continue
        try:
            yield encode(plan, graph), inputs
        except Unsupported:
            continue
        number -= 1


def report(sheet: Sheet, hits: Counter[str], *, misses: bool) -> None:
    """Points reached, per module."""
    points: dict[tuple[str, str], dict[tuple[str, int, str], int]] = defaultdict(lambda: defaultdict(int))
    for key, count in hits.items():
        parts = dict(part.split("\x02", 1) for part in key.split("\x01") if "\x02" in part)
        kind = "toggle" if "toggle" in parts["page"] else "line"
        point = (parts["f"], int(parts["l"]), parts.get("o", "") + parts.get("n", ""))
        points[Path(parts["f"]).stem, kind][point] += count  # instances and parameters together
    for kind in ("line", "toggle"):
        rows = {
            module: list(of.values()) for (module, of_kind), of in sorted(points.items()) if of_kind == kind
        }
        if not rows:
            continue
        table = Table(kind, box=box.SIMPLE_HEAD)
        for head in ("reached", "of", "%"):
            table.add_column(head, justify="right")
        everything = [count for of in rows.values() for count in of]
        for module, counts in (*rows.items(), ("all", everything)):
            reached = sum(count > 0 for count in counts)
            table.add_row(module, str(reached), str(len(counts)), f"{100 * reached / len(counts):.1f}")
        sheet.show(table)
    if misses:
        for (_, kind), of in sorted(points.items()):
            for (file, line, what), count in sorted(of.items()):
                if kind == "line" and not count:
                    print(f"not reached: {Path(file).name}:{line} {what}")


def functional(sheet: Sheet, number: int) -> None:
    """Kinds of computation in random plans, as they run (loops unrolled)."""
    kinds = defaultdict(Counter)
    crossed = Counter[tuple]()
    for stream, _ in streams(number):
        entries: dict[int, dict] = {}
        for command in unrolled(decode(stream.program)):
            if command.opcode is Opcode.DESCRIBE:
                entries[command.descriptor] = dict(command.values)
            elif command.opcode is Opcode.EXEC:
                d = defaultdict(int, entries[command.values["descriptor"]])
                row = (
                    Operation(d["operation"]).name, f"{d['stride_rows']}x{d['stride_columns']}",
                    d["dilation"], d["narrow"], d["first"], d["last"],
                    Scale(d["scale"]).name if d["last"] else "-",
                )  # fmt: skip
                crossed[row] += 1
                for name, value in zip(
                    ("operation", "strides", "dilation", "narrow", "first", "last", "scale"), row, strict=True
                ):
                    kinds[name][value] += 1
                kinds["kernel"][f"{d['kernel_rows']}x{d['kernel_columns']}"] += 1
                kinds["table, bias"][f"{d['has_table']}, {d['has_bias']}"] += 1
    sheet.show(f"{number} random plans: {sum(crossed.values())} computations of {len(crossed)} kinds")
    sheet.show("(a kind: operation x strides x dilation x narrow x first x last x scale)")
    for name, counts in kinds.items():
        sheet.show(
            f"{name}: " + ", ".join(f"{value} {count}" for value, count in sorted(counts.items(), key=str))
        )
    missing = [operation.name for operation in Operation if not kinds["operation"][operation.name]]
    sheet.show(f"operations that never occur: {', '.join(missing) or 'none'}")


if __name__ == "__main__":
    main()
