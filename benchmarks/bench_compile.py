"""What compiling a network takes: seconds of CPU time to plan, to print C and to compile it; KiB of C.

    python benchmarks/bench_compile.py [--networks ...] [--model FILE ...] [--threads 1 2] [--buffer 1MiB]

`plan` has a time limit. NumPy computes in one thread, as others would only wait. `compile` is the C compiler
on the model's C, with the flags of the target. Processor time, not the clock: what else runs on the machine
lengthens it less.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from rich import box
from rich.table import Table
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cpu import add_options, say, subjects
from benchmarks.results import Sheet
from codegen.build import build, find_compiler, write_source
from codegen.emit import emit_c
from lfopt import zoo
from lfopt.app.compiled import CPU, plan_for_cpu
from lfopt.app.sizes import size_option
from lfopt.ir import Graph, Hardware, LfoptError

PRINTED, COMPILED = 3.0, 15.0  # seconds that no network should exceed


def main() -> None:
    """A row for each network and number of threads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, zoo.names())
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1], help="a row for each (default %(default)s)"
    )
    options = parser.parse_args()
    table = Table(
        title="seconds of processor time", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("network", no_wrap=True)
    for head in ("threads", "plan", "print", "compile", "KiB of C"):
        table.add_column(head, justify="right", no_wrap=True)
    most = [0.0, 0.0]
    threadpool_limits(1)
    for subject in subjects(options):
        try:
            for row in _rows(
                subject.graph(),
                Hardware(size_option(options.buffer, "--buffer"), CPU.element_bytes),
                options.threads,
            ):
                threads, plan, print_, compile_, size = row
                table.add_row(
                    subject.name,
                    str(threads),
                    f"{plan:.2f}",
                    f"{print_:.2f}",
                    f"{compile_:.2f}",
                    f"{size / 1024:,.0f}",
                )
                most = [max(most[0], print_), max(most[1], compile_)]
        except (LfoptError, OSError) as error:
            say(f"{subject.name}: skipped: {error}")
    sheet = Sheet("compile", options.results)
    sheet.show(table)
    sheet.show(
        f"Most: {most[0]:.2f} s to print (wanted: {PRINTED:g}), "
        f"{most[1]:.2f} s to compile (wanted: {COMPILED:g})."
    )
    sheet.write()


def _rows(graph: Graph, chip: Hardware, counts: list[int]) -> list[tuple[int, float, float, float, int]]:
    """(threads, seconds to plan, to print, to compile, bytes of C) for each number of threads."""
    started = time.process_time()
    plan, rows = plan_for_cpu(graph, chip), list[tuple[int, float, float, float, int]]()
    planned = time.process_time() - started
    for threads in counts:
        started = time.process_time()
        source = emit_c(plan, graph, threads=threads)
        printed = time.process_time() - started
        with tempfile.TemporaryDirectory() as folder:
            write_source(source, Path(folder))
            before = _children()
            build(source, Path(folder), find_compiler())
        rows.append((threads, planned, printed, _children() - before, len(source.files["model.c"])))
    return rows


def _children() -> float:
    """Seconds of processor time of processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
