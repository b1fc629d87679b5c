"""`lfopt batch`: rows are those of `lfopt search`, and none is lost or computed twice, whatever dies."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from lfopt.app.batch import engine
from lfopt.app.batch.engine import JobFailure, WorkersLost, cluster, processes, run, values
from lfopt.app.batch.jobs import BatchJob, read_jobs
from lfopt.app.batch.journal import journal
from lfopt.app.batch.work import JobResult, compute
from lfopt.app.commands.batch import JOURNAL
from lfopt.frontend import load
from lfopt.ir import InvalidConfig, InvalidModel
from tests.app.batch_jobs import Noted, computed, names
from tests.app.conftest import refused
from tests.conftest import ROOT
from tests.qdq_models import quantise
from tests.test_tiny import residual_block

HERE = processes(1, "test", "batch")
SMALL = "networks: [block.onnx]\nbuffers: [2KiB, 4KiB]\nschemes: [lbdf, auto]\nobjectives: [bytes]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a network of five operators and a batch of four jobs."""
    onnx.save(residual_block(), tmp_path / "block.onnx")
    (tmp_path / "jobs.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# -- the engine ----------------------------------------------------------------------------------------------


def test_a_job_that_raises_is_a_failure_in_one_line_and_the_others_go_on() -> None:
    def job(k: int) -> int:
        if k == 1:
            raise InvalidConfig("two\nlines")
        return 10 // (k - 2)

    outcomes = dict(run(job, range(4), HERE))
    assert outcomes[0] == -5 and outcomes[3] == 10
    assert outcomes[1] == JobFailure("two lines")
    assert (
        isinstance(outcomes[2], JobFailure)
        and outcomes[2].message.startswith("ZeroDivisionError: ")
        and "Traceback" in outcomes[2].trace
    )
    with pytest.raises(InvalidConfig, match="two lines"):
        list(values(job, range(2), HERE))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(values(job, [2], HERE))


def test_a_job_that_kills_its_process_is_a_failure_and_no_other_job_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "log"
    jobs = [Noted(log, f"job{k}", deadly=k == 3) for k in range(12)]
    before: Counter[str] = Counter()
    outcomes: dict[int, Any] = {}
    for k, outcome in run(computed, jobs, processes(2, "test", "batch")):
        assert k not in outcomes
        outcomes[k] = outcome
        before[jobs[k].name] = Counter(names(log))[jobs[k].name]
    assert isinstance(outcomes.pop(3), JobFailure)
    assert outcomes == {k: f"JOB{k}" for k in range(12) if k != 3}
    after = Counter(names(log))
    assert all(after[jobs[k].name] == before[jobs[k].name] for k in outcomes), (
        "computed again after it came back"
    )


def test_no_row_is_lost_with_a_worker_or_with_the_whole_cluster(here: Any, folder: Path) -> None:
    """A worker is killed, then the scheduler: a new cluster computes what the journal lacks, no more."""
    distributed = pytest.importorskip("distributed")
    log, path = folder / "log", folder / "journal"
    jobs = {f"job{k}": Noted(log, f"job{k}", slow=k >= 15) for k in range(25)}

    def rest(address: str) -> Any:
        missing = [job for name, job in jobs.items() if name not in kept.rows]
        for k, value in values(computed, missing, cluster(address, "test", "cluster")):
            assert missing[k].name not in kept.rows
            kept.add(missing[k].name, Text(value))
            yield len(kept.rows)

    def local(count: int) -> Any:
        return distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, dashboard_address=None, silence_logs="CRITICAL"
        )

    done_early: dict[str, int] = {}

    def killed(first: Any) -> None:
        for count in rest(first.scheduler_address):
            if count == 4:
                done_early.update((name, names(log).count(name)) for name in kept.rows)
                # until the scheduler knows that nobody wants these any more
                while len(first.scheduler.tasks) > len(jobs) - count:
                    time.sleep(0.01)
                os.kill(first.workers[0].pid, signal.SIGKILL)
            if count == 10:
                first.close()

    with journal(path, JOURNAL, Text) as kept, local(2) as first:
        with pytest.raises(WorkersLost, match="the cluster is gone"):
            killed(first)
        assert 10 <= len(kept.rows) < len(jobs)
    kept_before = set(kept.rows)
    (folder / "hurry").touch()
    counted = Counter(names(log))
    assert {name: counted[name] for name in done_early} == done_early, (
        "computed again after the worker was killed"
    )
    with journal(path, JOURNAL, Text) as kept, local(1) as second:
        assert set(kept.rows) == kept_before
        list(rest(second.scheduler_address))
        assert (
            here("batch", "jobs.yaml", "-o", "a.csv", "--cluster", second.scheduler_address).returncode == 0
        )
    assert [row["error"] for row in rows_of(folder / "a.csv")] == [""] * 4
    assert {name: row.text for name, row in kept.rows.items()} == {name: name.upper() for name in jobs}
    counted.subtract(names(log))
    assert all(counted[name] == 0 for name in kept_before), "computed again though its row was there"


@dataclass(frozen=True)
class Text:
    """A row of these tests."""

    text: str


def test_a_cluster_that_does_not_answer_is_one_line(
    here: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(engine, "CONNECT_SECONDS", 0.1)
    for address in ("tcp://127.0.0.1:1", "nonsense://here", "\x1b[31m"):
        assert "no scheduler of Dask answers" in refused(
            here("batch", "jobs.yaml", "-o", "a.csv", "--cluster", address)
        )


@pytest.mark.parametrize(("module", "arguments", "extra"), [
    ("joblib", (), "batch"),
    ("distributed", ("--cluster", "tcp://10.0.0.1:8786"), "cluster"),
    ("pyarrow.parquet", ("-o", "a.parquet"), "batch"),
])  # fmt: skip
def test_what_is_not_installed_is_named_before_anything_runs(
    here: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    arguments: tuple[str, ...],
    extra: str,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert f"pip install 'lfopt[{extra}]'" in refused(here("batch", "jobs.yaml", *arguments))


# -- jobs ----------------------------------------------------------------------------------------------------


def test_jobs_are_every_combination_and_alike_ones_are_one(folder: Path) -> None:
    (folder / "jobs.yaml").write_text(
        "networks: [block.onnx, zoo:fsrcnn]\nsettings: {plain: {}, wide: {band_rows: max, search: {budget: "
        "50}}}\nwidths: [1, 2]\n"
        "hardware: [accelerator_256k.yaml, {buffer_bytes: 8KiB, name: own}]\nmethods: [exact, local]\nseeds: "
        "[3, 4]\nover: {traffic: [tiled, once]}\n"
    )
    jobs, alike = read_jobs(Path("jobs.yaml"))
    assert len(jobs) + alike == 2**7
    assert alike == 2**6 - 2**5, "exact draws no numbers: one seed is as good as another"
    last = jobs[-1]
    assert last.labels == {
        "network": "zoo:fsrcnn", "setting": "wide", "hardware": "own", "buffer_bytes": 8192,
        "element_bytes": 2, "scheme": "all", "method": "local", "objective": "bytes", "seed": 4,
        "traffic": "once",
    }  # fmt: skip
    assert (
        last.config.band_rows,
        last.config.search.budget,
        last.config.search.seed,
        last.config.traffic,
    ) == ("max", 50, 4, "once")
    assert {job.labels["seed"] for job in jobs if job.labels["method"] == "exact"} == {None}


def test_a_key_is_of_what_decides_the_result(folder: Path) -> None:
    def keys(text: str, name: str = "jobs.yaml") -> list[str]:
        (folder / name).write_text(text)
        return [job.key for job in read_jobs(Path(name))[0]]

    chip = "networks: [block.onnx]\nhardware: [{{buffer_bytes: {}, name: {}}}]\n"
    first = keys(chip.format("4KiB", "a"))
    assert keys(chip.format("4096", "b"), "other.yaml") == first, "names decide nothing"
    assert keys(chip.format("8KiB", "a")) != first
    said = chip.replace("name", "element_bytes: 2, name").format("4KiB", "a")
    assert keys(said, "other.yaml") != first, "what nothing says follows from the network"
    model = residual_block()
    model.graph.name = "changed"
    onnx.save(model, folder / "block.onnx")
    assert keys(chip.format("4KiB", "a")) != first


def test_external_data_is_content_and_a_worker_that_has_other_content_refuses(folder: Path) -> None:
    model = residual_block()
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(model.graph.initializer[0]), "more")
    )
    onnx.save(
        model, folder / "block.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    (job, *_), _ = read_jobs(Path("jobs.yaml"))
    assert compute(job).proof == "optimal"
    data = bytearray((folder / "weights.bin").read_bytes())
    data[0] ^= 1
    (folder / "weights.bin").write_bytes(data)
    assert read_jobs(Path("jobs.yaml"))[0][0].key != job.key
    with pytest.raises(InvalidModel, match="is not the network that it was"):
        compute(replace_config(job, rules="all"))


@pytest.mark.parametrize("number", [0, 1])
def test_the_batch_files_of_the_page_are_some(folder: Path, number: int) -> None:
    page = (ROOT / "docs/batch.md").read_text()
    text = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[number]
    (folder / "models").mkdir()
    (folder / "block.onnx").rename(folder / "models/detector.onnx")
    (folder / "jobs.yaml").write_text(text)
    jobs, alike = read_jobs(Path("jobs.yaml"))
    assert (len(jobs), alike) == ((24, 0), (2**4 * (1 + 3), 2**4 * 2))[number]
    if number == 0:
        assert (ROOT / "configs/batch/modes.yaml").read_text().endswith(text)


def replace_config(job: BatchJob, **changes: Any) -> BatchJob:
    return job._replace(config=replace(job.config, **changes))


HOSTILE = (
    ("networks: [no.onnx]\nbuffers: [4KiB]", "no.onnx: no such file"),
    ("networks: [zoo:vgg61]", "vgg61"),
    ("networks: []\nbuffers: [64KiB]", "model: missing"),
    ("networks: zoo:vgg16", "networks: found 'zoo:vgg16'; accepted: a list"),
    ("networks: [block.onnx]", "hardware: missing"),
    ("networks: [block.onnx]\nbuffers: [0]", "buffer_bytes: found 0"),
    ("networks: [block.onnx]\nbuffers: [64QB]", "64QB"),
    ("networks: [block.onnx]\nbuffers: [true]", "buffers.0"),
    ("networks: [block.onnx]\nbuffers: [4KiB]\nschemes: [lbfd]", "schemes.0: found 'lbfd'"),
    (
        "networks: [block.onnx]\nbuffers: [4KiB]\nmethod: [exact]",
        "method: unknown field; did you mean 'methods'?",
    ),
    (
        "networks: [block.onnx]\nbuffers: [4KiB]\nmethods: [nsga2]\nobjectives: [cycles]",
        "job of networks block.onnx",
    ),
    ("networks: [block.onnx]\nbuffers: [4KiB]\nseeds: [-1]\nmethods: [random]", "seed: found -1"),
    ("networks: [block.onnx]\nhardware: [no.yaml]", "no.yaml: no such file"),
    ("networks: [block.onnx]\nhardware: [{buffer_bytes: 4KiB, colour: red}]", "colour: unknown field"),
    (
        "networks: [block.onnx]\nbuffers: [4KiB]\nover: {search.slak: [1]}",
        "search.slak: unknown field; did you mean 'slack'?",
    ),
    (
        "networks: [block.onnx]\nbuffers: [4KiB]\nover: {search.seed: [1]}",
        "over.search.seed: accepted: seeds",
    ),
    ("networks: [block.onnx]\nbuffers: [4KiB]\nover: {out: [a]}", "a batch writes no plans"),
    ("networks: [block.onnx]\nbuffers: [4KiB]\nover: {model.a: [1]}", "found no mapping in model"),
    ("networks: [block.onnx]\nbuffers: [4KiB]\nover: {'...': [1]}", "unknown field"),
    ("networks: [block.onnx]\nbuffers: [4KiB]\nover: {traffic: []}", "found an empty list"),
    ("networks: [block.onnx]\nbuffers: [4KiB]\nsettings: {a: 5}", "settings.a"),
    ("networks: [block.onnx]\nbuffers: [4KiB]\nsettings: {a: no.yaml}", "no.yaml: no such file"),
    ("networks: [block.onnx]\nbuffers: [4KiB]\nsettings: {a: {modle: b}}", "modle: unknown field"),
    ("networks: [\"\\e[2J\\0\"]\nbuffers: [4KiB]", "networks"),
    (
        "networks: [block.onnx]\n"
        + "".join(f"{name}: [{', '.join('1' * 200)}]\n" for name in ("buffers", "widths", "seeds")),
        "up to 1,000,000",
    ),
    ("- a", "accepted: a mapping"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "said"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_batch_file_that_is_none_is_one_line(here: Any, folder: Path, text: str, said: str) -> None:
    (folder / "jobs.yaml").write_text(text)
    line = refused(here("batch", "jobs.yaml", "--jobs", "1", "-o", "a.csv"))
    assert said in line and line.isprintable()
    assert not (folder / "a.csv").exists() and not (folder / "a.csv.journal").exists()


@pytest.mark.parametrize(
    "arguments", [("--jobs", "0"), ("--top", "-1"), ("-o", "a.txt"), ("-o", "a"), ("-o", ".")]
)
def test_an_option_that_is_none_is_one_line(here: Any, folder: Path, arguments: tuple[str, ...]) -> None:
    assert "accepted" in refused(here("batch", "jobs.yaml", *arguments))


# -- rows ----------------------------------------------------------------------------------------------------


def test_rows_are_what_search_finds_for_the_same_settings(here: Any, folder: Path) -> None:
    (folder / "jobs.yaml").write_text(
        "networks: [zoo:squeezenet1_1]\nhardware: [buffer_128k.yaml]\nbuffers: [256KiB]\nwidths: "
        "[1]\nschemes: [lbdf]\nmethods: [local]\nseeds: [1]\n"
        "over: {search.budget: [20], search.slack: [0%]}\n"
    )
    assert here("batch", "jobs.yaml", "--jobs", "1", "-o", "a.csv").returncode == 0
    chip = ("--hardware", "buffer_128k.yaml", "--buffer", "256KiB", "--element-bytes", "1")
    how = ("--scheme", "lbdf", "--method", "local", "--seed", "1", "--budget", "20", "--slack", "0%")
    assert here("search", "zoo:squeezenet1_1", *chip, *how, "-o", "plan").returncode == 0
    plan = json.loads((folder / "plan/plan.json").read_text())
    report = json.loads(here("simulate", "plan", "--json").stdout)
    (row,) = rows_of(folder / "a.csv")
    totals = plan["totals"]
    for name in (
        "proof",
        "dram_bytes",
        "lower_bound_bytes",
        "gap",
        "compulsory_bytes",
        "layer_by_layer_bytes",
        "epilogue_fused_bytes",
    ):
        assert row[name] == str(totals[name])
    assert {name: int(row[f"{name}_bytes"]) for name in report["dram"] if name != "total"} == {
        k: v for k, v in report["dram"].items() if k != "total"
    }
    assert (int(row["groups"]), int(row["cycles"]), int(row["macs"])) == (
        len(plan["groups"]),
        report["cycles"]["total"],
        report["macs"],
    )
    assert float(row["energy_uj"]) == pytest.approx(report["energy"]["total_pj"] / 1e6, rel=1e-12)
    assert (row["plans_evaluated"], row["seed"], row["timing"]) == ("20", "1", report["cycles"]["timing"])


def test_a_row_says_the_element_bytes_of_its_plan(here: Any, folder: Path) -> None:
    quantise(load(folder / "block.onnx"), folder / "integers.onnx", np.random.default_rng(0))
    (folder / "jobs.yaml").write_text(
        "networks: [block.onnx, integers.onnx]\n"
        "hardware: [{buffer_bytes: 4KiB}, {buffer_bytes: 4KiB, element_bytes: 2}]\n"
    )
    assert here("batch", "jobs.yaml", "--jobs", "1", "-o", "a.csv").returncode == 0
    rows = rows_of(folder / "a.csv")
    assert [(row["network"], row["element_bytes"]) for row in rows] == [
        ("block.onnx", "2"), ("block.onnx", "2"), ("integers.onnx", "1"), ("integers.onnx", "2"),
    ]  # fmt: skip
    assert int(rows[2]["dram_bytes"]) < int(rows[3]["dram_bytes"])


def test_csv_parquet_and_json_agree(here: Any, folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (folder / "jobs.yaml").write_text(f"{SMALL}over: {{band_rows: [1, max, null], traffic: [tiled, once]}}\n")
    assert here("batch", "jobs.yaml", "--jobs", "1", "-o", "a.csv").returncode == 0
    (folder / "a.parquet.journal").write_bytes((folder / "a.csv.journal").read_bytes())
    printed = json.loads(here("batch", "jobs.yaml", "--jobs", "1", "-o", "a.parquet", "--json").stdout)
    table = parquet.read_table(folder / "a.parquet")
    assert {
        name: str(table.schema.field(name).type)
        for name in ("dram_bytes", "gap", "error", "seed", "element_bytes", "band_rows")
    } == {
        "dram_bytes": "int64", "gap": "double", "error": "string", "seed": "string",
        "element_bytes": "int64", "band_rows": "string",
    }  # fmt: skip
    rows = table.to_pylist()
    assert rows == [
        {**row, "band_rows": row["band_rows"] and str(row["band_rows"])} for row in printed["rows"]
    ]
    assert rows_of(folder / "a.csv") == [
        {
            name: "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in row.items()
        }
        for row in rows
    ]
    assert all(row["recounted"] is True for row in rows)
    assert (printed["schema"], printed["jobs"], len(rows)) == ("lfopt.batch/1", 24, 24)


KILLED_AT_THE_SIXTH = """
import os, signal
from itertools import count
from lfopt.app.cli import main
from lfopt.app.commands import batch

def compute(job, compute=batch.compute, jobs=count(1)):
    if next(jobs) == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return compute(job)

batch.compute = compute
main()
"""


def test_a_run_that_is_killed_goes_on_where_it_was(here: Any, folder: Path) -> None:
    (folder / "jobs.yaml").write_text(
        "networks: [block.onnx]\n"
        f"buffers: [{', '.join(f'{2000 + k}B' for k in range(20))}]\nschemes: [auto]\n"
    )
    arguments = ["batch", "jobs.yaml", "-o", "a.csv", "--jobs", "1"]
    command = [sys.executable, "-c", KILLED_AT_THE_SIXTH, *arguments]
    killed = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    kept = folder / "a.csv.journal"
    before = kept.read_bytes()
    assert before.count(b"\n") == 1 + 5
    with kept.open("ab") as file:
        file.write(b'{"key": "torn')
    done = here(*arguments, "--top", "0")
    assert done.returncode == 0, done.stderr
    assert "20 jobs, 5 rows from before" in done.stdout
    assert kept.read_bytes().startswith(before) and kept.read_bytes().count(b"\n") == 21
    assert len({row["key"] for row in rows_of(folder / "a.csv")}) == 20


def test_ctrl_c_leaves_all_finished_rows_and_says_how_to_go_on(
    here: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved: list[str] = []

    def third_interrupted(job: BatchJob) -> JobResult:
        if len(solved) == 2:
            raise KeyboardInterrupt
        solved.append(job.key)
        return compute(job)

    with monkeypatch.context() as patched:
        patched.setattr("lfopt.app.commands.batch.compute", third_interrupted)
        done = here("batch", "jobs.yaml", "-o", "a.csv", "--jobs", "1")
    assert done.returncode == 130
    assert "interrupted: 2 of 4 jobs are finished; the same command goes on from there" in done.stderr
    assert [row["key"] for row in rows_of(folder / "a.csv")] == solved
    assert "4 jobs, 2 rows from before" in here("batch", "jobs.yaml", "-o", "a.csv", "--jobs", "1").stdout
    assert len(rows_of(folder / "a.csv")) == 4


def test_a_search_that_ctrl_c_cuts_short_is_no_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lfopt.app.pipeline.run_search", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compute(read_jobs(Path("jobs.yaml"))[0][0])


def test_a_job_that_fails_is_a_row_and_runs_again_only_when_asked(
    here: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved: list[int] = []

    def one_fails(job: BatchJob) -> JobResult:
        solved.append(job.config.hardware.buffer_bytes)
        if job.config.hardware.buffer_bytes == 4096 and job.config.scheme == "auto":
            raise InvalidConfig("no luck\nat all")
        return compute(job)

    with monkeypatch.context() as patched:
        patched.setattr("lfopt.app.commands.batch.compute", one_fails)
        first = here("batch", "jobs.yaml", "-o", "a.csv", "--jobs", "1")
        again = here("batch", "jobs.yaml", "-o", "a.csv", "--jobs", "1")
    assert (first.returncode, again.returncode, len(solved)) == (1, 1, 4)
    assert "1 job failed no luck at all" in first.stdout and "--retry" in first.stdout
    assert [row["error"] for row in rows_of(folder / "a.csv")] == ["", "", "", "no luck at all"]
    assert here("batch", "jobs.yaml", "-o", "a.csv", "--jobs", "1", "--retry").returncode == 0
    assert [row["error"] for row in rows_of(folder / "a.csv")] == [""] * 4


ROW = json.dumps({"key": "k", "row": asdict(JobResult(dram_bytes=1))})
HOSTILE_JOURNALS = (
    (b"{}\n", "line 1: schema"),
    (b'{"schema": "lfopt.journal/9"}\n', "line 1: schema"),
    (b"\xff\xfe\n", "line 1: not JSON"),
    (b"[" * 9000 + b"\n", "line 1: not JSON"),
    (b"x" * (1 << 17), "line 1: found more than"),
    ("{1}[]\n", "line 2: found list"),
    ("{1}null", None),
    ("{1}{{\n", "line 2: not JSON"),
    ('{1}{{"key": 1, "row": {{}}}}\n', "line 2: found fields"),
    ('{1}{{"key": "k", "row": []}}\n', "line 2: found []"),
    ('{1}{{"key": "k", "row": {{"dram_bytes": -1}}}}\n', "line 2: dram_bytes: found -1"),
    ('{1}{{"key": "k", "row": {{"gap": 1e999}}}}\n', "line 2: gap: found inf"),
    ('{1}{{"key": "k", "row": {{"proof": "surely"}}}}\n', "line 2: proof: found 'surely'"),
    ('{1}{{"key": "k", "row": {{"colour": "red"}}}}\n', "line 2: colour: unknown field"),
    ("{1}{0}\n{0}", None),  # the last line is torn
)


@pytest.mark.parametrize(("text", "said"), HOSTILE_JOURNALS, ids=range(len(HOSTILE_JOURNALS)))
def test_a_journal_that_is_none_is_one_line_and_a_torn_last_line_is_dropped(
    tmp_path: Path, text: bytes | str, said: str | None
) -> None:
    path = tmp_path / "journal"
    path.write_bytes(
        text if isinstance(text, bytes) else text.format(ROW, json.dumps({"schema": JOURNAL}) + "\n").encode()
    )
    before = path.read_bytes()
    if said is None:
        with journal(path, JOURNAL, JobResult) as kept:
            assert path.read_bytes() == before[: before.rindex(b"\n") + 1]
            kept.add("more", JobResult(error="x"))
        with journal(path, JOURNAL, JobResult) as kept:
            assert kept.rows["more"] == JobResult(error="x")
        return
    with pytest.raises(InvalidConfig) as caught, journal(path, JOURNAL, JobResult):
        pass
    assert said in str(caught.value) and str(caught.value).isprintable()
    assert path.read_bytes() == before


def test_a_journal_whose_row_lacks_a_figure_is_one_line(here: Any, folder: Path) -> None:
    (job, *_), _ = read_jobs(folder / "jobs.yaml")
    for name in ("dram_bytes", "groups"):
        row = asdict(JobResult(dram_bytes=1, lower_bound_bytes=1, cycles=1, macs=1, groups=1)) | {name: None}
        lines = ({"schema": JOURNAL}, {"key": job.key, "row": row})
        (folder / "o.csv.journal").write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert f"{name}: found null and no error" in refused(here("batch", "jobs.yaml", "-o", "o.csv"))
        assert not (folder / "o.csv").exists()


ODD = (
    "=1+1",
    "+1",
    "-1",
    "@x",
    "\t=1",
    "a;=1",
    'a"=1',
    "\uff1d1",
    "\x1b[2J",
    "\u202ex",
    "a\nb",
    "[red]x",
    ":smile:",
)


def test_no_cell_of_a_table_is_a_formula_and_none_acts_on_a_terminal(here: Any, folder: Path) -> None:
    (folder / "=1+1").write_bytes((folder / "block.onnx").read_bytes())
    settings = {name: {"hardware": {"buffer_bytes": 4096 + k}} for k, name in enumerate(ODD)}
    batch = {"networks": ["=1+1"], "settings": settings}
    (folder / "-odd.yaml").write_text(json.dumps(batch))
    done = here("batch", "--jobs", "1", "-o", "o.csv", "--", "-odd.yaml")
    assert done.returncode == 0, done.stderr
    cells = [cell for row in rows_of(folder / "o.csv") for cell in row.values()]
    assert {"'=1+1", "'+1", "'-1", "'@x", "a;'=1", ":smile:"} <= {*cells}
    for cell in cells:
        assert cell.isprintable() and not re.search(r"(^|[;\"|])[=+@\uff1d-]", cell), cell
    assert all(line.isprintable() for line in done.stdout.splitlines())


def test_a_journal_has_one_writer_and_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with (
        journal(path, JOURNAL, JobResult),
        pytest.raises(InvalidConfig, match="another run writes it"),
        journal(path, JOURNAL, JobResult),
    ):
        pass
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(InvalidConfig, match="found a pipe or device"),
        journal(tmp_path / "pipe", JOURNAL, JobResult),
    ):
        pass
