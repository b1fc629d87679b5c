"""lfopt batch: many searches from one file, a row for each.

Raises InvalidConfig for options that are not accepted, WorkersLost where the cluster is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lfopt.app.answers.fronts import BatchAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.batch.engine import JobFailure, Workers, WorkersLost, cluster, processes, run
from lfopt.app.batch.jobs import BatchJob, Label, by_network, read_jobs
from lfopt.app.batch.journal import Journal, journal
from lfopt.app.batch.rows import Row, check_table, row_of, write_table
from lfopt.app.batch.work import JobResult, blank, compute, failed
from lfopt.app.commands.options import INTERRUPTED
from lfopt.app.config import INSTALLED, find_config
from lfopt.app.deadline import ReportProgress
from lfopt.app.options import JOBS, JobsOption
from lfopt.app.screen import err, out, progress_line, shown, spread
from lfopt.app.sizes import format_size
from lfopt.ir import InvalidConfig
from lfopt.ir.names import file_name, plural

WHO = "lfopt batch"
JOURNAL = "lfopt.journal/1"
NOTHING = ("",) * 5  # where there are no figures
REASONS = 8  # why jobs failed: lines printed


def batch(
    file: str,
    /,
    *,
    out_file: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    jobs: JobsOption = JOBS,
    cluster_address: Annotated[str | None, Parameter(name="--cluster")] = None,
    retry: Annotated[bool, Parameter(negative="")] = False,
    top: int = 20,
) -> int:
    """Run many searches from one file, on one machine or a cluster, and gather a row for each.

    The file lists networks, buffers, widths, schemes, methods, seeds, and any other field; every combination
    is a job, with one row in CSV or Parquet. Rows of finished jobs are kept beside the output as they come,
    in FILE.journal. The same command goes on where another run of it ended, whatever ended it, and computes
    what is missing; a job is known by the content of its network and its settings. Ctrl-C leaves the rows so
    far.

    Example: lfopt batch modes.yaml --out runs/modes.parquet --jobs 8

    Exit code 0: every job has its figures; 1: jobs failed, and their rows say why; 2: wrong input, or the
    cluster is gone; 130: Ctrl-C.

    Parameters
    ----------
    file
        Batch file (YAML); a bare name is looked for in the working folder, then among the installed ones.
    out_file
        Table to write, .csv or .parquet; runs/NAME.csv if not given.
    cluster_address
        Scheduler of a Dask cluster, such as tcp://10.0.0.1:8786, whose workers run the jobs in place of
        processes here.
    retry
        Whether jobs that failed before run again.
    top
        Rows shown.
    """
    if jobs < 1 or top < 0:
        raise InvalidConfig(f"--jobs {jobs}, --top {top}: accepted: at least 1 job, at least 0 rows")
    path = find_config(file, "batch file", INSTALLED / "batch")
    table_file = out_file or Path("runs") / f"{file_name(path.stem)}.csv"
    check_table(table_file, WHO)
    if cluster_address is None:
        workers = processes(jobs, WHO, "batch")
    else:
        workers = cluster(cluster_address, f"{WHO} --cluster", "cluster")
    wanted, alike = read_jobs(path)
    with journal(table_file.with_name(f"{table_file.name}.journal"), JOURNAL, JobResult) as kept:
        for job in wanted:
            if (row := kept.rows.get(job.key)) is not None and (absent := row.absent):
                raise InvalidConfig(
                    f"{kept.path}: row of {job.key}: {absent}: found null and no error; accepted: a number"
                )
        missing = [
            job
            for job in wanted
            if (row := kept.rows.get(job.key)) is None or (retry and row.error is not None)
        ]
        interrupted = False
        try:
            with progress_line() as report:
                _run(missing, workers, kept, report)
        except KeyboardInterrupt:
            interrupted = True
        except WorkersLost as lost:
            raise WorkersLost(f"--cluster {cluster_address}: {lost}; {_so_far(wanted, kept)}") from None
        finally:
            rows = [row_of(job, kept.rows[job.key]) for job in wanted if job.key in kept.rows]
            if rows:
                write_table(table_file, rows)
        _print(path, table_file, wanted, alike, len(missing), rows, top)
        answer(BatchAnswer(str(table_file), len(wanted), alike, tuple(map(dict, rows)), interrupted))
        _say_what_differs(rows)
        if interrupted:
            err.print(
                f"note: interrupted: {_so_far(wanted, kept)}", style="yellow", markup=False, soft_wrap=True
            )
            return INTERRUPTED
    if any(row["error"] for row in rows):
        return 1
    return 0


def _run(missing: list[BatchJob], workers: Workers, kept: Journal[JobResult], report: ReportProgress) -> None:
    """Compute and keep the rows of these jobs."""
    order = [missing[k] for k in by_network(missing)]
    failures = 0
    report(f"0 of {len(order):,} jobs", 0.0)
    for done, (k, outcome) in enumerate(run(compute, order, workers), 1):
        failures += isinstance(outcome, JobFailure)
        kept.add(order[k].key, failed(outcome) if isinstance(outcome, JobFailure) else outcome)
        report(
            f"{done:,} of {len(order):,} jobs" + (f", {failures:,} failed" if failures else ""),
            done / len(order),
        )


def _so_far(wanted: Sequence[BatchJob], kept: Journal[JobResult]) -> str:
    done = sum(job.key in kept.rows for job in wanted)
    return f"{done:,} of {plural(len(wanted), 'job')} are finished; the same command goes on from there"


def _say_what_differs(rows: Sequence[Row]) -> None:
    """Rows of other versions, which another run has left, stay as they are."""
    for name in ("lfopt", "python", "numpy"):
        here = getattr(blank(), name)
        others = Counter(str(row[name]) for row in rows if row[name] != here)
        for other, count in others.items():
            err.print(
                f"note: {plural(count, 'row')} of {name} {other}, this is {here}",
                style="yellow",
                markup=False,
                soft_wrap=True,
            )


def _print(
    path: Path,
    table_file: Path,
    wanted: Sequence[BatchJob],
    alike: int,
    missing: int,
    rows: Sequence[Row],
    top: int,
) -> None:
    doubled = f" ({plural(alike, 'combination')} more come to the same)" if alike else ""
    before = f", {plural(len(wanted) - missing, 'row')} from before" if missing < len(wanted) else ""
    out.print(f"[bold]{shown(path.name)}[/]: {plural(len(wanted), 'job')}{doubled}{before}", soft_wrap=True)
    vary = [
        name
        for name in wanted[0].labels
        if name != "network" and len({job.labels[name] for job in wanted}) > 1
    ]
    lines: list[tuple[str, ...]] = []
    for network, network_rows in groupby(rows[:top], lambda row: row["network"]):
        lines.append((str(network), *NOTHING))
        for row in network_rows:
            job = " ".join(_label(name, row[name]) for name in vary if row[name] is not None)
            lines.append((f"  {job}", *_figures(row)))
    if lines:
        out.print()
        out.print(
            spread(
                ("", "DRAM bytes", "gap", "groups", "kcycles*", "s"),
                lines,
                bold=[k for k, line in enumerate(lines) if line[0][0] != " "],
            )
        )
        rest = f"[dim]{plural(len(rows) - top, 'row')} more: --top[/]\n" if len(rows) > top else ""
        out.print(f"{rest}[dim]* model: follows from the hardware description[/]")
    failures = [row for row in rows if row["error"]]
    for reason, count in Counter(str(row["error"]) for row in failures).most_common(REASONS):
        out.print(f"[red]{plural(count, 'job')} failed[/] {shown(reason)}", soft_wrap=True)
    if failures:
        out.print("[dim]--retry runs what failed again[/]")
    if rows:
        out.print(f"\n[dim]wrote[/] {shown(table_file)}[dim]: {plural(len(rows), 'row')}[/]", soft_wrap=True)


def _label(name: str, value: Label) -> str:
    """What a row is of, in few words."""
    if name == "buffer_bytes":
        return format_size(int(value or 0))
    if name == "element_bytes":
        return f"{value} B"
    if isinstance(value, int | float):
        return f"{name} {value}"
    return str(value)


def _figures(row: Row) -> tuple[str, ...]:
    if row["error"]:
        return ("failed", *NOTHING[1:])
    if row["proof"] == "optimal":
        proven = "optimal"
    elif row["gap"] is not None:
        proven = f"{100 * float(row['gap']):,.1f} %"
    else:
        proven = ""
    cycles, seconds = (float(row[name] or 0) for name in ("cycles", "seconds"))
    return (f"{row['dram_bytes']:,}", proven, f"{row['groups']:,}", f"{cycles / 1e3:,.0f}", f"{seconds:.1f}")
