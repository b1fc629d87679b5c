"""What a batch costs beside its jobs: jobs and keys made, jobs handed out, rows fetched, kept and written.

    python benchmarks/bench_batch.py [--jobs N] [--processes N] [--results FOLDER]

The jobs are searches of MobileNet-V2 that a function answers at once, with the row that the search of one of
them gave.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.results import Sheet, add_option
from lfopt.app.batch.engine import JobFailure, Workers, cluster, processes, run
from lfopt.app.batch.jobs import BatchJob, read_jobs
from lfopt.app.batch.journal import journal
from lfopt.app.batch.rows import row_of, write_table
from lfopt.app.batch.work import JobResult, compute
from lfopt.app.files import write_text

WHO = "bench_batch"
BUFFERS = 100


def main() -> None:
    """Run the jobs in every way, print what each costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000, help="default %(default)s")
    parser.add_argument("--processes", type=int, default=2, help="default %(default)s")
    add_option(parser)
    options = parser.parse_args()
    sheet = Sheet("batch", options.results)
    table = Table(
        title=f"{options.jobs:,} jobs of MobileNet-V2, seconds",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    for head in (
        "making jobs",
        "first row",
        "all rows",
        "reading rows",
        "Parquet",
        "together",
        "per 100 jobs",
    ):
        table.add_column(head, justify="right", no_wrap=True)
    with TemporaryDirectory() as folder:
        jobs, making = _made(Path(folder), options.jobs)
        answer = compute(jobs[0])
        _row(table, "this process", jobs, making, processes(1, WHO, "batch"), answer)
        _row(
            table,
            f"joblib, {options.processes} processes",
            jobs,
            making,
            processes(options.processes, WHO, "batch"),
            answer,
        )
        from distributed import LocalCluster  # noqa: PLC0415  (optional)

        with LocalCluster(n_workers=options.processes, threads_per_worker=1, dashboard_address=None) as local:
            workers = cluster(local.scheduler_address, WHO, "cluster")
            _row(table, f"Dask, {options.processes} processes", jobs, making, workers, answer)
    sheet.show(table)
    sheet.show(
        "first row: with the start of joblib's processes; the cluster is there already. together: all but "
        "the first row, which all rows have."
    )
    sheet.write()


def _made(folder: Path, count: int) -> tuple[list[BatchJob], float]:
    """So many jobs, and the seconds that they took: buffers and seeds of a method that draws."""
    buffers = [f"{64 + 4 * k}KiB" for k in range(BUFFERS)]
    path = folder / "jobs.yaml"
    seeds = list(range(-(-count // BUFFERS)))
    write_text(
        path,
        f"networks: [zoo:mobilenet_v2]\nbuffers: [{', '.join(buffers)}]\nmethods: [random]\nover: "
        f"{{search.budget: [20]}}\nseeds: {seeds}\n",
    )
    start = time.perf_counter()
    jobs, _ = read_jobs(path)
    return jobs[:count], time.perf_counter() - start


def _answered(_: BatchJob, answer: JobResult) -> JobResult:
    return answer


def _row(
    table: Table, name: str, jobs: list[BatchJob], making: float, workers: Workers, answer: JobResult
) -> None:
    with TemporaryDirectory() as folder:
        path, out = Path(folder) / "journal", Path(folder) / "rows.parquet"
        start = time.perf_counter()
        first = 0.0
        with journal(path, "lfopt.journal/1", JobResult) as kept:
            for k, outcome in run(partial(_answered, answer=answer), jobs, workers):
                assert not isinstance(outcome, JobFailure), outcome.message
                kept.add(jobs[k].key, outcome)
                first = first or time.perf_counter() - start
        done = time.perf_counter()
        with journal(path, "lfopt.journal/1", JobResult) as kept:
            rows = dict(kept.rows)
        read = time.perf_counter()
        write_table(out, [row_of(job, rows[job.key]) for job in jobs])
        written = time.perf_counter()
    together = making + written - start
    seconds = (making, first, done - start, read - done, written - read, together)
    table.add_row(name, *(f"{value:.2f}" for value in seconds), f"{100 * together / len(jobs):.3f}")


if __name__ == "__main__":
    main()
