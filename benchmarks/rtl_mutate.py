"""Change the accelerator's SystemVerilog in many small ways, one at a time, and see which check finds each.

All mutants are built into one model, as alternatives that an environment variable chooses, so that a mutant
costs no build. What runs is a copy of the repository: its own checks, by pytest, the quickest for a module
first. A mutant that no check finds is a gap in the checks, unless it does what the original does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import ROOT, Sheet, add_option
from benchmarks.rtl_mutants import Mutant, mutants

RTL = Path("hw_rtl") / "rtl"
CHOICE = "LF_MUTANT"  # environment variable: a number; 0 or none: the original
# In a package that every design compiles, before what reads it.
PACKAGE, HOST = "lf_mutant_pkg", "lf_reach_pkg"
CHOSEN = f"""package {PACKAGE};
  int number = $c32("(std::getenv(\\"{CHOICE}\\") ? std::atoi(std::getenv(\\"{CHOICE}\\")) : 0)");
endpackage
"""
LINT = "".join(
    f"// verilator lint_off {name}\n" for name in "DECLFILENAME WIDTH UNUSED CMPCONST UNOPTFLAT".split()
)
ASSIGNED = re.compile(r"(assign \S+\s*= )(.*);", re.DOTALL)

CHECKS = {
    "programs": [
        "tests/hw_rtl/test_control.py",
        "-k",
        "not lint and not cannot_be and not corrupted and not four_states",
    ],
    "exec": ["tests/hw_rtl/test_exec.py"],
    "corrupted": ["tests/hw_rtl/test_control.py", "-k", "corrupted"],
    "units": ["tests/hw_rtl/test_cocotb.py", "-k", "not axi"],
    "system": ["tests/hw_rtl/test_cocotb.py", "-k", "axi"],
    "plans": ["tests/hw_rtl/test_rtl.py::test_random_plans_on_rtl", "tests/hw_rtl/test_emulator.py"],
}
COMPUTES = frozenset(
    "setup ring columns second weights array accumulators drain requantize tables exec".split()
)
BUS = frozenset("axi registers".split())
QUIET = ("-o", "addopts=-q --strict-markers --import-mode=importlib", "-x", "-m", "not slow")


@dataclass(frozen=True, slots=True)
class MutantVerdict:
    """What became of a mutant."""

    check: str = ""  # that found it; "": none
    test: str = ""  # the first that failed
    seconds: float = 0.0


class MutantVerdicts:
    """What became of mutants, in a file that outlives a run."""

    def __init__(self, file: Path, *, keep: bool) -> None:
        self.file, self.lock = file, Lock()
        self.of: dict[str, list] = json.loads(file.read_text()) if keep and file.exists() else {}

    def verdict_of(self, mutant: Mutant) -> MutantVerdict | None:
        """How it was found, if it was."""
        known = MutantVerdict(*self.of.get(_key(mutant), ()))
        return known if known.check else None

    def add(self, mutant: Mutant, verdict: MutantVerdict) -> MutantVerdict:
        with self.lock:
            self.of[_key(mutant)] = [verdict.check, verdict.test, verdict.seconds]
            self.file.write_text(json.dumps(self.of, indent=1))
        return verdict


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("only", nargs="*", help="modules, or numbers of mutants (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="checks that run at a time")
    parser.add_argument(
        "--checks",
        nargs="+",
        choices=CHECKS,
        default=[*CHECKS],
        help="which to run (default: all, until one finds something)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the copy, its models and verdicts are kept for another run (default: nowhere)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="do not try again what was found before, in the folder's verdicts",
    )
    parser.add_argument(
        "--list", action="store_true", help="list the mutants, and whether each fits its file"
    )
    add_option(parser)
    options = parser.parse_args()
    everything = mutants()
    sources = mutated(everything)
    if options.list:
        for number, mutant in enumerate(everything, 1):
            print(
                f"{number:4} {mutant.file:16} {_short(mutant.old)}  ->  "
                f"{_short(mutant.new)}{'   (same)' * bool(mutant.same)}"
            )
        return
    chosen = [
        number
        for number, mutant in enumerate(everything, 1)
        if not options.only or {str(number), mutant.file} & {*options.only}
    ]
    sheet = Sheet("rtl-mutate", options.results)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        copied(folder, sources)
        limits = {check: 30 + 4 * unharmed(folder, check) for check in options.checks}
        known = MutantVerdicts(folder / "verdicts.json", keep=options.resume)

        def verdict(number: int) -> MutantVerdict:
            mutant = everything[number - 1]
            return known.verdict_of(mutant) or known.add(mutant, judged(folder, number, mutant, limits))

        with ThreadPoolExecutor(options.jobs) as pool:
            verdicts = dict(zip(chosen, pool.map(verdict, chosen), strict=True))
    report(sheet, everything, verdicts)
    sheet.write()


# -- Mutants side by side ------------------------------------------------------------------------------------


def mutated(everything: Sequence[Mutant]) -> dict[str, str]:
    """Text of each module with all its mutants as alternatives.

    Exits with those that do not fit, if the SystemVerilog has changed.
    """
    places: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, mutant in enumerate(everything, 1):
        places[mutant.file][mutant.old].append(number)
    files, stale = {}, []
    for file, olds in places.items():
        text = (ROOT / RTL / f"{file}.sv").read_text()
        starts = {}
        for old, numbers in olds.items():
            if text.count(old) == 1:
                starts[old] = text.index(old)
            else:
                stale.append(f"{file}.sv has {text.count(old)} times, of mutant {numbers[0]}: {old}")
        last = len(text)
        for old, at in sorted(starts.items(), key=lambda item: -item[1]):
            if at + len(old) > last:
                stale.append(f"{file}.sv: mutant {olds[old][0]} overlaps the next one: {old}")
            text = (
                text[:at]
                + alternatives(old, [(number, everything[number - 1].new) for number in olds[old]])
                + text[at + len(old) :]
            )
            last = at
        files[file] = LINT + text
    host = files.get(HOST) or LINT + (ROOT / RTL / f"{HOST}.sv").read_text()
    files[HOST] = LINT + CHOSEN + host
    if stale:
        raise SystemExit(
            "\n".join(
                (
                    (
                        "these mutants do not fit any more; accepted: what occurs once "
                        "(benchmarks/rtl_mutants.py)"
                    ),
                    *stale,
                )
            )
        )
    return files


def alternatives(old: str, news: Sequence[tuple[int, str]]) -> str:
    """Source that does what one of the mutants does, or the original.

    >>> alternatives("a + b", [(3, "a - b")])
    '(lf_mutant_pkg::number == 3 ? (a - b) : (a + b))'
    >>> alternatives("x <= y;", [(4, "")])
    'if (lf_mutant_pkg::number == 4) begin  end else begin x <= y; end'
    """
    if match := ASSIGNED.fullmatch(old):
        others = [ASSIGNED.fullmatch(new) for _, new in news]
        assert all(other is not None and other[1] == match[1] for other in others), (
            f"an assign stays one: {old}"
        )
        pairs = [(number, other[2]) for (number, _), other in zip(news, others, strict=True) if other]
        return f"{match[1]}{alternatives(match[2], pairs)};"
    text = old
    for number, new in news:
        chosen = f"{PACKAGE}::number == {number}"
        text = (
            f"if ({chosen}) begin {new} end else begin {text} end"
            if old.endswith(";")
            else f"({chosen} ? ({new}) : ({text}))"
        )
    return text


def copied(folder: Path, sources: dict[str, str]) -> None:
    """A copy of the repository with these modules in it.

    Files that are as they should be stay, so that models that were built do.
    """
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        source, target = ROOT / name, folder / name
        if not source.is_file() or name.startswith("docs/"):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    for file, text in sources.items():
        (folder / RTL / f"{file}.sv").write_text(text)


# -- Checks --------------------------------------------------------------------------------------------------


def checks(module: str) -> list[str]:
    """Names of the checks, the one that is likely to find something first."""
    name = module.removeprefix("lf_")
    first = (
        ["exec", "plans", "programs"]
        if name in COMPUTES
        else ["programs", "system"]
        if name in BUS
        else ["programs", "system", "plans"]
    )
    # modules that are not in the bench of computation
    alone = name not in COMPUTES | {"buffer", "reach_pkg", "memory"}
    return [*first, *(check for check in CHECKS if check not in first and not (alone and check == "exec"))]


def checked(folder: Path, check: str, number: int, limit: float | None) -> tuple[bool, str]:
    """(whether all is well, the test that found that it is not)."""
    environment = {
        **os.environ,
        CHOICE: str(number),
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COCOTB_MAX_FAILURES": "1",
    }
    command = [sys.executable, "-m", "pytest", *QUIET, *CHECKS[check]]
    with tempfile.TemporaryFile("w+") as log:
        running = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = running.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # with the simulator that it waits for
            running.wait()
            return False, "takes too long"
        log.seek(0)
        output = log.read()
    if code not in (0, 1):  # nothing was judged: it was killed, or could not begin
        raise SystemExit(f"{shlex.join(command)} ends with {code}:\n{output[-5000:]}")
    match = re.search(r"AssertionError: \['(\w+)", output) or re.search(
        r"^(?:FAILED|ERROR) [^:]*::(\w+)", output, re.MULTILINE
    )
    return code == 0, match[1] if match else ""  # of a bench in Python, or of pytest


def unharmed(folder: Path, check: str) -> float:
    """Seconds that a check takes with the original, once its model is built."""
    checked(folder, check, 0, None)
    start = time.perf_counter()
    passes, test = checked(folder, check, 0, None)
    if not passes:
        raise SystemExit(f"{check} fails without any mutant, at {test}: nothing can be learnt from it")
    seconds = time.perf_counter() - start
    print(f"{check}: {seconds:.0f} s", flush=True)
    return seconds


def judged(folder: Path, number: int, mutant: Mutant, limits: dict[str, float]) -> MutantVerdict:
    """Let checks look at a mutant until one finds it."""
    start = time.perf_counter()
    verdict = MutantVerdict()
    for check in (check for check in checks(mutant.file) if check in limits):
        passes, test = checked(folder, check, number, limits[check])
        if not passes:
            verdict = MutantVerdict(check, test)
            break
    verdict = MutantVerdict(verdict.check, verdict.test, time.perf_counter() - start)
    says = f"{verdict.check}, {verdict.test}" if verdict.check else "SAME" if mutant.same else "SURVIVES"
    print(
        f"{number:4} {mutant.file:16} {verdict.seconds:5.0f} s  {says}   {_short(mutant.old)}  ->  "
        f"{_short(mutant.new)}",
        flush=True,
    )
    return verdict


def report(sheet: Sheet, everything: Sequence[Mutant], verdicts: dict[int, MutantVerdict]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for head in ("", "module", "original", "mutant", "found by", "test", "s"):
        table.add_column(head, justify="right" if head in ("", "s") else "left")
    for number, verdict in verdicts.items():
        mutant = everything[number - 1]
        cells = (
            str(number),
            mutant.file,
            _short(mutant.old),
            _short(mutant.new),
            verdict.check or "-",
            verdict.test,
            f"{verdict.seconds:.0f}",
        )
        table.add_row(*(cell.replace("[", r"\[") for cell in cells))
    same = [number for number in verdicts if everything[number - 1].same]
    real = [number for number in verdicts if number not in same]
    killed = [number for number in real if verdicts[number].check]
    sheet.show(
        f"{len(verdicts)} mutants, {len(same)} of them equivalent; of the {len(real)} others, {len(killed)} "
        f"are found: {len(killed) / len(real):.1%}"
    )
    sheet.keep(table)
    for number in (number for number in real if number not in killed):
        mutant = everything[number - 1]
        sheet.show(
            f"not found: {number}, {mutant.file}: {_short(mutant.old)} -> {_short(mutant.new)}".replace(
                "[", r"\["
            )
        )
    for number in same:
        mutant = everything[number - 1]
        sheet.show(
            f"equivalent: {number}, {mutant.file}, {_short(mutant.new)}: {mutant.same}".replace("[", r"\[")
        )


def _key(mutant: Mutant) -> str:
    return f"{mutant.file}: {mutant.old} -> {mutant.new}"


def _short(text: str) -> str:
    return re.sub(r"\s+", " ", text) or "nothing"


if __name__ == "__main__":
    main()
