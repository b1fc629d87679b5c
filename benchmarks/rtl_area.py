"""Cells of each module of the accelerator by Yosys (pyosys), and the bytes of all its memories.

Mapped to Xilinx UltraScale+ (LUT, FF, DSP, RAM), which takes minutes. The counts of a module hold those of the modules in it.
Needs `pip install pyosys`, whose frontend `read_slang` reads the SystemVerilog as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.table import Table

from benchmarks.results import Sheet, add_option
from lfopt.isa.systemverilog import generate
from lfopt.isa.tables import ACCUMULATORS, COMPUTATION, DESCRIPTORS, FACTOR_BYTES, FACTOR_ROWS, LOOP_WORDS, TABLE_BYTES, TABLES, TRANSFER, WORD_BYTES

RTL = Path(__file__).parents[1] / "hw_rtl" / "rtl"
# From leaves up: (module, parameters).
MODULES: tuple[tuple[str, str], ...] = (
    ("lf_modulo", ""), ("lf_ring", ""), ("lf_queue", ""), ("lf_requests", ""), ("lf_control", ""), ("lf_registers", ""), ("lf_fetch", ""),
    ("lf_sequencer", ""), ("lf_prepare", "Lanes"), ("lf_job", "Lanes"), ("lf_load", "Lanes"), ("lf_store", "Lanes"), ("lf_dma", "Lanes"),
    ("lf_setup", "Lanes"), ("lf_columns", ""), ("lf_second", "Lanes"), ("lf_weights", "Lanes"), ("lf_tables", "Lanes"),
    ("lf_accumulators", "Lanes"), ("lf_drain", "Lanes"), ("lf_array", "Lanes"),
)  # fmt: skip
KINDS = {"LUT": r"LUT\d", "FF": r"FD[RCSP]E.*|\$a?s?dffe?.*|\$a?l?dffe?", "DSP": r"DSP48.*|\$mul|\$macc.*", "RAM": r"RAMB.*|RAM\d+.*|\$mem.*"}
QUEUE_DEPTH, ENTRY_BITS = 8, 6 + 16 + 12 + 16 + 10 + 10 + 8 + 3 + 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--buffer-bytes", type=int, default=262144)
    parser.add_argument("--words", dest="fpga", action="store_false", help="do not map: adders, multipliers and registers count as words; seconds")
    parser.add_argument("--limit", type=int, default=120, help="seconds for one module")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("modules", nargs="*", help="only these")
    add_option(parser)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(cells(arguments.one, arguments.lanes, fpga=arguments.fpga)))
        return
    sheet, table, sizes = Sheet("rtl-area", arguments.results), Table("module"), Table("memory")
    for head in ("cells", *KINDS, "s"):
        table.add_column(head, justify="right")
    sizes.add_column("bytes", justify="right")
    print(f"{'module':<14}{'cells':>8}{'LUT':>8}{'FF':>8}{'DSP/mul':>8}{'RAM':>6}{'s':>6}")
    for module, _ in MODULES:
        if arguments.modules and module not in arguments.modules:
            continue
        start = time.monotonic()
        command = [sys.executable, __file__, "--one", module, "--lanes", str(arguments.lanes), *["--words"] * (not arguments.fpga)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=arguments.limit, env={**os.environ})
        except subprocess.TimeoutExpired:
            print(f"{module:<14}  more than {arguments.limit} s", flush=True)
            continue
        if done.returncode:
            print(f"{module:<14}  {(done.stdout + done.stderr).strip().splitlines()[-1][:110]}", flush=True)
            continue
        found = json.loads(done.stdout.strip().splitlines()[-1])
        sums = [sum(number for cell, number in found.items() if re.fullmatch(pattern, cell)) for pattern in KINDS.values()]
        counts = "".join(f"{number:>{width}}" for number, width in zip(sums, (8, 8, 8, 6), strict=True))
        table.add_row(module, str(sum(found.values())), *map(str, sums), f"{time.monotonic() - start:.0f}")
        print(f"{module:<14}{sum(found.values()):>8}{counts}{time.monotonic() - start:>6.0f}", flush=True)
    print()
    for name, size in memories(arguments.lanes, arguments.buffer_bytes).items():
        sizes.add_row(name, f"{size:,}")
        print(f"{name:<40}{size:>10} bytes")
    sheet.keep(table)
    sheet.keep(sizes)
    sheet.write()


def cells(module: str, lanes: int, *, fpga: bool) -> dict[str, int]:
    """Cells by type, of the module and everything in it."""
    from pyosys import libyosys  # noqa: PLC0415 (not everyone has it)

    parameter = f"-GLanes={lanes}" if dict(MODULES)[module] else ""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in generate():
            (Path(folder) / name).write_text(text)
        files = [*(Path(folder) / name for name, _ in generate()), RTL / "lf_dma_pkg.sv", *sorted(set(RTL.glob("*.sv")) - {RTL / "lf_dma_pkg.sv"})]
        design = libyosys.Design()
        statistics = Path(folder) / "stat.json"
        steps = [f"read_slang -D SYNTHESIS {parameter} --top {module} {' '.join(map(str, files))}"]
        if fpga:
            steps.append(f"synth_xilinx -family xcup -flatten -noiopad -top {module}")
        else:  # adders, multipliers and registers as words
            steps += [f"hierarchy -top {module}", "proc", "flatten", "opt -full", "memory -nomap", "opt"]
        steps.append(f"tee -q -o {statistics} stat -json")
        with contextlib.redirect_stdout(io.StringIO()):
            for step in steps:
                libyosys.run_pass(step, design)
        found = json.loads(statistics.read_text())
        return dict(found["design"]["num_cells_by_type"])


def memories(lanes: int, buffer_bytes: int) -> dict[str, int]:
    """Bytes of every memory."""
    return {
        "buffer (4 banks, 1R1W)": buffer_bytes,
        "accumulators (2 halves of int32)": 2 * ACCUMULATORS * lanes * 4,
        "weights beside the array (2 tiles)": 2 * lanes * lanes,
        "factors": FACTOR_ROWS * lanes * FACTOR_BYTES,
        "tables": TABLES * TABLE_BYTES,
        "tables in use (2, registers)": 2 * TABLE_BYTES,
        "descriptors (EXEC; LOAD and STORE)": DESCRIPTORS * (COMPUTATION.used_bits + 2 * TRANSFER.used_bits) // 8,
        "words of an outermost loop": LOOP_WORDS * WORD_BYTES,
        "queues (3)": 3 * QUEUE_DEPTH * ENTRY_BITS // 8,
    }


if __name__ == "__main__":
    main()
