"""`lfopt schema`: what lfopt writes is valid, and what a schema refuses, lfopt refuses to read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lfopt.app.batch.jobs import read_jobs
from lfopt.app.batch.work import JobResult
from lfopt.app.config import load_config, load_hardware, validate
from lfopt.app.files import read_plan
from lfopt.app.pipeline import load_network
from lfopt.app.plans import make_draft, write_files
from lfopt.app.schema import CLASSES, FILES, TYPES, dataclasses_of, described, schema
from lfopt.ir import Compute, Hardware, InvalidConfig, LfoptError, Loop, Scheme, Transfer
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Traffic
from search.exact import solve
from search.options import SearchOptions
from tests.plan_fuzz import mutated
from tests.strategies import random_graph

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PLANS: tuple[tuple[str, int, Scheme, Traffic], ...] = (  # network, KiB, scheme, traffic
    ("mobilenet_v2", 128, "lbdf", Traffic.TILED),
    ("mobilenet_v3_small", 64, "auto", Traffic.TILED),
    ("squeezenet1_1", 64, "brr", Traffic.TILED),
    ("vgg16", 128, "lbdf", Traffic.PAPER),
)
WRITTEN = dataclasses_of(
    (*FILES.values(), JobResult, Transfer, Compute, Loop)
)  # by people, or for them to read


def valid(document: str, data: Any) -> str:
    """What the first fault is by the schema; nothing where there is none."""
    jsonschema = pytest.importorskip("jsonschema")
    fault = jsonschema.exceptions.best_match(checker(document, jsonschema).iter_errors(data))
    return "" if fault is None else f"{fault.json_path}: {fault.message[:200]}"


def checker(document: str, jsonschema: Any, validators: dict[str, Any] = {}) -> Any:  # noqa: B006
    """Made once for each kind of file."""
    if document not in validators:
        document_schema = schema(document)  # type: ignore[arg-type]
        jsonschema.Draft202012Validator.check_schema(document_schema)
        validators[document] = jsonschema.Draft202012Validator(document_schema)
    return validators[document]


def written(folder: Path, network: str, kib: int, scheme: Scheme, traffic: Traffic) -> dict[str, Any]:
    """plan.json of a network of the zoo."""
    graph = load_network(f"zoo:{network}", {}, "default", weights=False)
    return planned(folder, GroupCosts(Dataflow.of(graph), Hardware(kib * 1024), traffic, scheme=scheme))


def planned(folder: Path, costs: GroupCosts) -> dict[str, Any]:
    searched = solve(costs, SearchOptions(time_limit=5))
    graph = costs.dataflow.graph
    write_files(make_draft(graph, costs, searched, searched.lower_bound_bytes).finished(), graph, folder)
    return json.loads((folder / "plan.json").read_text())


@pytest.mark.parametrize(("network", "kib", "scheme", "traffic"), PLANS)
def test_plans_of_the_zoo_are_valid(
    tmp_path: Path, network: str, kib: int, scheme: Scheme, traffic: Traffic
) -> None:
    assert not valid("plan", written(tmp_path, network, kib, scheme, traffic))


def test_a_plan_that_is_read_is_valid(tmp_path: Path) -> None:
    """A plan that was changed at random: where the schema refuses it, so does lfopt."""
    refused = 0
    for seed in range(4):
        rng = np.random.default_rng((3, seed))
        flow = Dataflow.of(random_graph(rng, 8))
        size = 4 * sum(tensor.elements for tensor in flow.graph.tensors.values())
        scheme: Scheme = ("lbdf", "brr", "resident", "auto")[seed]
        document = planned(
            tmp_path / str(seed),
            GroupCosts(flow, Hardware(64 + int(0.2 * size), element_bytes=4), scheme=scheme),
        )
        assert not valid("plan", document)
        for _ in range(50):
            what, changed = mutated(document, rng)
            if fault := valid("plan", changed):
                refused += 1
                (tmp_path / "plan.json").write_text(json.dumps(changed))
                with pytest.raises(LfoptError):
                    raise AssertionError(f"{what}: {fault}: {read_plan(tmp_path).model}")
    assert refused > 10


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_installed_configurations_are_valid(path: Path) -> None:
    kind = {"hardware": "hardware", "batch": "jobs"}.get(path.parent.name, "config")
    {"hardware": load_hardware, "config": load_config, "jobs": read_jobs}[kind](path)
    assert not valid(kind, yaml.safe_load(path.read_text()))


HARDWARE = (
    {"buffer_bytes": 1024, "element_bytes": 0},
    {"buffer_bytes": "64 KB"},
    {"buffer_bytes": 1024, "start_cycles": -1},
    {"buffer_bytes": 1024, "overlap": 1},
    {"buffer_bytes": 1024, "energy": {"mac_pj": -1}},
    {"buffer_bytes": 1024, "colour": "red"},
    {"element_bytes": 2},
)


@pytest.mark.parametrize("data", HARDWARE, ids=str)
def test_a_hardware_description_that_lfopt_refuses_is_not_valid(data: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        validate(Hardware, data, "here")
    assert valid("hardware", data)


def test_every_line_of_a_plan_is_one_of_the_schema(tmp_path: Path) -> None:
    document = written(tmp_path, "squeezenet1_1", 128, "lbdf", Traffic.TILED)
    line = re.compile(schema("plan")["$defs"]["PlannedGroup"]["properties"]["steps"]["items"]["pattern"])
    lines = [line for group in document["groups"] for line in group["steps"]]
    assert len(lines) > 100
    assert [text for text in lines if not line.search(text)] == []
    assert [text for text in lines if line.search(text + " more")] == []


@pytest.mark.parametrize("document", TYPES)
def test_the_command_prints_a_schema_of_every_field(here: Any, document: str) -> None:
    printed = json.loads(here("schema", document).stdout)
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    objects = {TYPES[document].__name__: printed} | printed.get("$defs", {})
    named = {kind.__name__: kind for kind in CLASSES}
    assert {*named} >= {name for name, described_type in objects.items() if "properties" in described_type}
    for name in objects.keys() & named:
        fields = {field.name for field in described(named[name])}
        assert not fields ^ {*objects[name]["properties"]} - {"schema"}
        assert objects[name]["additionalProperties"] is False


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.__name__)
def test_fields_that_people_write_or_read_are_described(kind: type) -> None:
    assert [field.name for field in described(kind) if not field.text] == []
