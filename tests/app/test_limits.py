"""Plans whose steps a limit leaves out: partition, bytes and proof are whole, and readers name the gap."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from cyclopts import App

from codegen.accel import check as check_plan
from codegen.emit import emit_c
from codegen.source import Unsupported
from lfopt.app import pipeline
from lfopt.app.commands.options import chip
from lfopt.app.commands.report import report
from lfopt.app.commands.search import search
from lfopt.app.commands.simulate import simulate as simulate_command
from lfopt.app.commands.sweep import sweep
from lfopt.app.config import Config, SearchConfig
from lfopt.app.pipeline import JobOutcome, find_plan, write_outcome
from lfopt.app.sizes import bytes_text, format_size, parse_size, size_option
from lfopt.app.verify import load_planned
from lfopt.ir import CannotWrite, DoesNotFit, Graph, Hardware, InvalidConfig, Plan, line_count, step_count
from lfopt.planning import GroupCosts, Limit
from search.result import Result, unfused
from search.staircase import Stair
from simulator.model.simulate import simulate
from simulator.recount import recount

SCHEMES: tuple[str, ...] = ("lbdf", "brr", "resident", "auto")


@cache
def outcome_of(scheme: str = "auto", buffer_bytes: int = 8192) -> JobOutcome:
    """A small network on a chip where groups of several modes run, some of them tiled."""
    return find_plan(job(scheme, buffer_bytes))


def job(scheme: str = "auto", buffer_bytes: int = 8192, how: SearchConfig | None = None) -> Config:
    return Config(
        "zoo:fsrcnn",
        Hardware(buffer_bytes),
        scheme,
        input_shapes={"image": (1, 1, 20, 24)},
        search=how or SearchConfig(objective="bytes"),
    )


def after(calls: int) -> Callable[[], bool]:
    """Time is over after so many looks at the clock."""
    looks = count()
    return lambda: next(looks) >= calls


def but_for_steps(plan: Plan) -> Plan:
    return replace(
        plan, groups=tuple(replace(group, steps=(), places=(), unexecutable="") for group in plan.groups)
    )


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("calls", [0, 3, 40])
def test_a_plan_without_steps_says_the_same_but_for_them_and_a_recount_holds(scheme: str, calls: int) -> None:
    draft = outcome_of(scheme).draft
    whole, short = draft.finished(Limit()), draft.finished(Limit(after(calls)))
    left_out = [group for group in short.groups if group.unwritten]
    assert left_out
    assert all(group.steps for group in whole.groups)
    assert but_for_steps(short) == but_for_steps(whole)
    assert all(
        "time limit" in group.unexecutable and not group.steps and not group.places for group in left_out
    )
    counted = recount(draft.graph, short)
    assert counted.discrepancies == ()
    assert counted.by_formula[0] + counted.not_recounted[0] == len(left_out)
    assert simulate(short, draft.graph).dram.total == whole.totals.dram_bytes


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    draft = outcome_of().draft
    assert draft.finished(Limit()) == draft.finished(Limit(lambda: False, most=1 << 40))


def test_a_plan_has_no_more_steps_than_allowed() -> None:
    draft = outcome_of("lbdf", 2048).draft
    whole = Limit()
    draft.finished(whole)
    limit = Limit(most=whole.spent // 2)
    short = draft.finished(limit)
    assert 0 < limit.spent <= whole.spent // 2
    assert any(group.steps for group in short.groups)
    assert any("at most" in group.unexecutable for group in short.groups)
    assert recount(draft.graph, short).discrepancies == ()


@pytest.mark.parametrize(("what", "counted"), [("steps", step_count), ("lines", line_count)])
def test_a_plan_holds_no_more_steps_and_lines_than_a_recount_walks(
    what: str, counted: Callable[..., int], monkeypatch
) -> None:
    """Every iteration of a loop counts, and every line left by folding: not the work of making them."""
    draft = outcome_of("brr", 2048).draft
    most = sum(counted(group.steps) for group in draft.finished(Limit()).groups) // 2
    short = draft.finished(Limit(steps=most) if what == "steps" else Limit(lines=most))
    assert most // 4 < sum(counted(group.steps) for group in short.groups) <= most
    assert any(
        f"at most {most:,} {'steps' if what == 'steps' else 'lines of steps'}" in group.unexecutable
        for group in short.groups
    )
    monkeypatch.setattr(sys.modules["simulator.recount.plan"], f"MOST_{what.upper()}", most)
    assert recount(draft.graph, short).discrepancies == ()


def test_the_clock_is_looked_at_within_one_group() -> None:
    """A single group of a tiny buffer may have millions of steps."""
    outcome = find_plan(job("lbdf", 256))
    able = [k for k, outline in enumerate(outcome.draft.outlines) if outline.schedule]
    longest = max(able, key=lambda k: outcome.plan.groups[k].dram.total)
    looks = count()
    short = replace(outcome.draft, outlines=(outcome.draft.outlines[longest],)).finished(
        Limit(lambda: next(looks) >= 100)
    )
    assert short.groups[0].unwritten
    assert next(looks) < 110


@pytest.mark.parametrize("mode", ["lbdf", "resident"])
def test_other_reasons_for_no_steps_are_still_wrong(mode: str) -> None:
    draft = outcome_of(mode, 1 << 20).draft
    plan = draft.finished(Limit())
    taken = replace(
        plan,
        groups=(
            replace(plan.groups[0], steps=(), places=(), unexecutable="too many to write down"),
            *plan.groups[1:],
        ),
    )
    assert any("has no steps" in line for line in recount(draft.graph, taken).discrepancies)


# -- the command ---------------------------------------------------------------------------------------------


def run(folder: Path, *more: str) -> object:
    """`lfopt search` within this process."""
    arguments = [
        "zoo:fsrcnn",
        "--input-shape",
        "image=1,1,20,24",
        "--out",
        str(folder),
        *(() if "--scheme" in more else ("--scheme", "lbdf")),
        *(() if "--objective" in more else ("--objective", "bytes")),
        *(more if "--buffer" in more else ("--buffer", "8KiB", *more)),
    ]
    app = App()
    app.default(search)
    return app(arguments, result_action="return_value", exit_on_error=False)


def test_a_time_limit_that_strikes_while_steps_are_made_is_said_and_has_its_own_exit_code(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(
        pipeline, "Limit", lambda stop, interruptible=False: Limit(after(30), interruptible=interruptible)
    )
    assert run(tmp_path / "o") == 3
    said = capsys.readouterr()
    assert "groups are written without steps: the time limit struck before" in said.err
    plan, graph = load_planned(tmp_path / "o")
    assert any(group.unwritten for group in plan.groups)
    assert recount(graph, plan).discrepancies == ()


def test_the_table_is_there_when_the_files_cannot_be_written(tmp_path, monkeypatch, capsys) -> None:
    def full(plan: Plan, graph: Graph, folder: Path) -> Plan:
        raise CannotWrite(f"{folder}/plan.json: cannot be written: No space left on device")

    monkeypatch.setattr(pipeline, "write_files", full)
    with pytest.raises(CannotWrite, match=r"plan\.json: cannot be written"):
        run(tmp_path / "o")
    assert "proven lower bound" in capsys.readouterr().out


def test_a_failed_write_names_the_file_and_leaves_no_part_of_it(tmp_path, monkeypatch) -> None:
    outcome = outcome_of()
    monkeypatch.setattr(
        os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(CannotWrite, match=r"simplified\.onnx: cannot be written: No space"):
        write_outcome(outcome, tmp_path / "o")
    assert not any((tmp_path / "o").iterdir())


@pytest.mark.parametrize("method", ["exact", "dp", "random", "local", "nsga2", "tvm", "dnnfusion"])
@pytest.mark.parametrize("call", [0, 3])
def test_ctrl_c_in_any_method_writes_the_best_plan_and_starts_no_other(
    tmp_path, monkeypatch, capsys, method: str, call: int
) -> None:
    """At call 0 nothing is found yet: every operator alone is written, and this is said."""
    asked, price = count(), GroupCosts.price

    def broken_off(costs: GroupCosts, mask: int) -> object:
        if next(asked) == call:
            raise KeyboardInterrupt
        return price(costs, mask)

    monkeypatch.setattr(GroupCosts, "price", broken_off)
    outcome = find_plan(job("lbdf", 8192, SearchConfig(method, ("random", "nsga2"))))  # type: ignore[arg-type]
    assert outcome.interrupted
    assert [ran.result.method for ran in outcome.runs] == [method]
    written = write_outcome(outcome, tmp_path)
    assert written.interrupted
    assert recount(outcome.graph, load_planned(tmp_path)[0]).discrepancies == ()
    assert next(asked) > call
    asked = count()
    assert run(tmp_path / "again", "--method", method) == 130
    assert "was interrupted" in capsys.readouterr().err


def test_ctrl_c_while_steps_are_made_leaves_them_out_and_a_second_one_writes_nothing(tmp_path) -> None:
    outcome = outcome_of()

    def interrupted_at(calls: int, then: int = 1 << 60) -> Callable[[], bool]:
        looks = count()

        def stop() -> bool:
            if next(looks) in (calls, then):
                raise KeyboardInterrupt
            return False

        return stop

    plan = outcome.draft.finished(Limit(interrupted_at(50), interruptible=True))
    assert any("Ctrl-C" in group.unexecutable for group in plan.groups)
    assert any(group.steps for group in plan.groups)
    assert recount(outcome.graph, plan).discrepancies == ()
    with pytest.raises(KeyboardInterrupt):
        outcome.draft.finished(Limit(interrupted_at(50)))


@pytest.mark.parametrize(("aside", "left"), [("simplified.onnx", []), ("plan.json", ["simplified.onnx"])])
@pytest.mark.parametrize("before", [False, True])
def test_ctrl_c_while_files_are_written(
    tmp_path, monkeypatch, before: bool, aside: str, left: list[str]
) -> None:
    """The first one writes them anew; one after an interrupted search ends at once.

    Either way no half of a file is left.
    """
    breaks, fsync = [aside], os.fsync

    def broken_off(file: int) -> None:
        # the file has no name of its own yet
        if breaks and Path(f"/proc/self/fd/{file}").readlink().name.startswith(aside):
            raise KeyboardInterrupt(breaks.pop())
        fsync(file)

    monkeypatch.setattr(os, "fsync", broken_off)
    outcome = replace(outcome_of(), interrupted=before)
    if before:
        with pytest.raises(KeyboardInterrupt):
            write_outcome(outcome, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == left
        return
    assert write_outcome(outcome, tmp_path).interrupted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "simplified.onnx"]
    load_planned(tmp_path)


def test_ctrl_c_during_a_sweep_keeps_the_sizes_that_are_done(tmp_path, monkeypatch, capsys) -> None:
    def stairs(*_: object) -> Iterator[Stair]:
        yield Stair(6000, 10, 10, 1, 0)
        yield Stair(5000, 20, 20, 2, 0)
        raise KeyboardInterrupt

    monkeypatch.setattr("lfopt.app.sweeps.staircase", stairs)
    done = sweep("zoo:fsrcnn", buffers="4096:8KiB", input_shape=("image=1,1,20,24",), out_dir=tmp_path)
    assert done == 130
    assert "interrupted" in capsys.readouterr().err
    assert (tmp_path / "staircase.csv").read_text().splitlines()[1:] == ["5000,20,20,2,0", "6000,10,10,1,0"]


def test_no_c_is_printed_for_line_buffers_without_steps() -> None:
    outcome = find_plan(replace(job("lbdf", 1 << 20), hardware=Hardware(1 << 20, element_bytes=4)))
    short = outcome.draft.finished(Limit(lambda: True))
    with pytest.raises(Unsupported, match="has no steps: its steps were not written"):
        emit_c(short, outcome.graph)


# -- sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["256", " 1 ", "4095", "0.5e0", "4095.0", "4e3", "256b"])
def test_a_small_number_on_the_command_line_needs_a_unit(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--buffer"):
        size_option(text, "--buffer")


@pytest.mark.parametrize(
    ("text", "size"),
    [("256 B", 256), ("1e4", 10_000), ("1KiB", 1024), ("4096", 4096), ("2k", 2048), ("unlimited", 1 << 40)],
)
def test_sizes_with_a_unit_or_large_enough_are_taken(text: str, size: int) -> None:
    assert size_option(text, "--buffer") == size


def test_no_size_that_stands_for_something_else_is_printed_as_a_number(tmp_path, capsys) -> None:
    assert bytes_text(1 << 62) == "more than any buffer"
    assert bytes_text(1 << 40) == format_size(1 << 40) == "unlimited"
    run(tmp_path / "o", "--buffer", "unlimited", "--scheme", "brr")
    said: list[str] = []
    outcome = outcome_of("brr")
    mask = outcome.costs.dataflow.everything
    never = DoesNotFit(mask, 1 << 62, 8192, ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lfopt.app.plans.draft", lambda *_: never)
        with pytest.raises(Exception, match="more than any buffer") as raised:
            find_plan(job("brr"))
        said.append(str(raised.value))
    find_plan(job("brr"), lambda what, done: said.append(what))
    with pytest.raises(Unsupported, match="unlimited") as refused:
        check_plan(
            replace(outcome.plan, hardware=chip("accelerator_256k.yaml", "unlimited", None)), outcome.graph
        )
    said.append(str(refused.value))
    captured = capsys.readouterr()
    assert written_as_a_number("".join([*said, captured.out, captured.err])) == []


def written_as_a_number(text: str) -> list[str]:
    """Sizes that stand for something else, in bytes or in any unit."""
    return re.findall(
        "4611686|1099511|1152921|1073741824|1048576 MiB|1024 GiB|1.04858e", text.replace(",", "")
    )


def test_a_sweep_up_to_a_buffer_without_a_limit_says_so_in_table_csv_and_picture(tmp_path, capsys) -> None:
    for buffers, rows in (
        ("6000:unlimited", None),
        ("unlimited", ["unlimited"]),
        ("8KiB,unlimited", ["8192", "unlimited"]),
    ):
        folder = tmp_path / buffers
        sweep("zoo:fsrcnn", buffers=buffers, input_shape=("image=1,1,20,24",), out_dir=folder)
        table = (folder / "staircase.csv").read_text()
        picture = re.findall(r"<text[^>]*>([^<]*)", (folder / "staircase.svg").read_text())
        assert rows is None or [line.split(",")[0] for line in table.splitlines()[1:]] == rows
        assert "unlimited" in picture
        assert written_as_a_number("\n".join([capsys.readouterr().out, table, *picture])) == []
    assert [parse_size(size, "the CSV") for size in rows or ()] == [8192, 1 << 40]
    assert [text for text in picture if text.endswith("KiB")] == ["8 KiB"]


def test_a_plan_without_a_limit_of_its_buffer_is_shown_without_a_share_of_it(tmp_path, capsys) -> None:
    write_outcome(outcome_of("brr", 1 << 40), tmp_path)
    simulate_command(tmp_path, group=0)
    report(tmp_path, sweep_seconds=0.2, explain_seconds=0)
    page = (tmp_path / "report.html").read_text()
    assert "of an unlimited buffer" in capsys.readouterr().out
    assert "unlimited buffer" in page
    assert '"buffer": null' in page or '"buffer":null' in page
    assert written_as_a_number(page) == []


def test_an_interrupted_search_without_a_plan_gives_every_operator_alone() -> None:
    model = outcome_of("lbdf").costs
    alone: Result = unfused(model, "local")
    assert alone.interrupted
    assert [group.bit_count() for group in alone.groups] == [1] * len(model.dataflow)
    assert alone.dram_bytes == sum(cost.dram_bytes for cost in map(model.price, alone.groups) if cost)
