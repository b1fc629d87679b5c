"""The jobs of a batch file: every combination of what it lists, each a whole configuration.

The key of a job is a digest of all that decides its result.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from lfopt.app.batch.networks import content
from lfopt.app.config import Config, SearchConfig, find_config, find_hardware, validate
from lfopt.app.documents import read_yaml
from lfopt.app.options import Method, Scheme
from lfopt.app.pipeline import ZOO
from lfopt.ir import InvalidConfig, InvalidModel
from lfopt.ir.hardware import AssumedBytes
from lfopt.ir.names import one_line
from lfopt.planning import MODEL
from search.methods import taking
from search.objectives import ObjectiveName

KEY = 32  # hexadecimal digits
MOST_JOBS = 1_000_000
# fields of a search -> the methods that read them
READ_BY = {"seed": taking("seed"), "budget": taking("budget")}

Label = str | int | float | bool | None


@dataclass(frozen=True)
class BatchFile:
    """Many jobs: every combination of what is listed. What a list says replaces what a setting says."""

    networks: tuple[str, ...] = ()  # ONNX files, folders with simplified.onnx, or zoo:NAME
    # name: fields of a configuration, or a file of them
    settings: dict[str, str | dict[str, Any]] = field(default_factory=dict)
    hardware: tuple[str | dict[str, Any], ...] = ()  # chips: files, or descriptions
    buffers: tuple[int | str, ...] = ()  # sizes, instead of that of the chip
    widths: tuple[int, ...] = ()  # bytes of an element of a feature map
    schemes: tuple[Scheme, ...] = ()  # how groups may run
    methods: tuple[Method, ...] = ()  # how to search
    objectives: tuple[ObjectiveName, ...] = ()  # what plans are to have little of
    # any other field of a configuration, such as search.slack: values
    over: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()  # of methods that draw random numbers; others run once


PATHS = {  # of the field in a configuration that a list is of
    "networks": "model",
    "hardware": "hardware",
    "buffers": "hardware.buffer_bytes",
    "widths": "hardware.element_bytes",
    "schemes": "scheme",
    "methods": "search.method",
    "objectives": "search.objective",
    "seeds": "search.seed",
}


class BatchJob(NamedTuple):
    """One row to be."""

    key: str  # digest of the configuration, and of the content of its network
    content: str  # digest of the network
    config: Config  # its model is an absolute path, or zoo:NAME
    labels: Mapping[str, Label]  # what the row says of the job


class _Axis(NamedTuple):
    """A list of the file."""

    name: str  # in the file
    path: str  # of the field in a configuration
    values: tuple[Any, ...]


def read_jobs(path: Path) -> tuple[list[BatchJob], int]:
    """The jobs of a batch file, those of one network together, and how many combinations repeat others.

    Raises InvalidConfig, which names the job where a combination is not valid; InvalidModel.
    """
    file = validate(BatchFile, read_yaml(path), str(path))
    axes = _axes(file, path)
    settings = {name: _setting(given, path, f"settings.{name}") for name, given in file.settings.items()} or {
        "": {}
    }
    count = len(settings) * prod(len(axis.values) for axis in axes)
    if count > MOST_JOBS:
        raise InvalidConfig(one_line(f"{path}: found {count:,} combinations; accepted: up to {MOST_JOBS:,}"))
    chips = {
        name: read_yaml(find_hardware(name, f"{path}: hardware", path.parent))
        for name in file.hardware
        if isinstance(name, str)
    }
    known: dict[str, str] = {}  # digests of networks
    jobs: dict[str, BatchJob] = {}
    for values in itertools.product(*(axis.values for axis in axes)):
        for setting, fields in settings.items():
            chosen = dict(zip((axis.name for axis in axes), values, strict=True))
            job = _job(path, axes, chosen, setting, fields, chips, known)
            jobs.setdefault(job.key, job)
    return list(jobs.values()), count - len(jobs)


def _axes(file: BatchFile, path: Path) -> list[_Axis]:
    """What the file lists, networks first."""
    for name, values in file.over.items():
        own = next((axis for axis, field_path in PATHS.items() if name in (axis, field_path)), None)
        if own is not None or name.partition(".")[0] == "out":
            raise InvalidConfig(
                one_line(
                    f"{path}: over.{name}: accepted: "
                    f"{own or 'fields that decide a result; a batch writes no plans'}"
                )
            )
        if not values:
            raise InvalidConfig(
                one_line(f"{path}: over.{name}: found an empty list; accepted: at least one value")
            )
    listed = [
        _Axis(name, field_path, getattr(file, name))
        for name, field_path in PATHS.items()
        if getattr(file, name)
    ]
    swept = [_Axis(name, name, values) for name, values in file.over.items()]
    return listed + swept


def _setting(given: str | dict[str, Any], path: Path, where: str) -> dict[str, Any]:
    """Fields of a configuration; files in them are found."""
    folder = path.parent
    if isinstance(given, str):
        beside = path.parent / given
        file = beside if beside.is_file() else find_config(given, f"{path}: {where}")
        fields = read_yaml(file)
        folder = file.parent
    else:
        fields = deepcopy(given)
    if isinstance(chip := fields.get("hardware"), str):
        fields["hardware"] = read_yaml(find_hardware(chip, f"{path}: {where}.hardware", folder))
    if isinstance(model := fields.get("model"), str):
        fields["model"] = _located(model, folder)
    fields.pop("out", None)
    return fields


def _located(model: str, folder: Path) -> str:
    """A network as every worker finds it."""
    if model.startswith(ZOO) or not model or "\0" in model:
        return model
    location = (folder / model).absolute()
    return str(location / MODEL if location.is_dir() else location)


def _job(
    path: Path,
    axes: list[_Axis],
    chosen: dict[str, Any],
    setting: str,
    fields: dict[str, Any],
    chips: Mapping[str, dict[str, Any]],
    known: dict[str, str],
) -> BatchJob:
    """One combination. Raises InvalidConfig, InvalidModel."""
    data = deepcopy(fields)
    settings = ", ".join(
        [*([setting] if setting else []), *(f"{name} {_text(value)}" for name, value in chosen.items())]
    )
    where = f"{path}: job of {settings}" if settings else str(path)
    for axis in axes:
        value = chosen[axis.name]
        if axis.path == "model":
            value = _located(value, path.parent)
        elif axis.path == "hardware" and isinstance(value, str):
            value = chips[value]
        _put(data, axis.path, deepcopy(value), where)
    config = _read_alone(validate(Config, data, where))
    if config.model not in known:
        try:
            known[config.model] = content(config.model)
        except InvalidModel as error:
            raise InvalidModel(one_line(f"{path}: networks: {error}")) from None
    digest = known[config.model]
    # what the chip is called decides nothing
    decides = asdict(replace(config, model=digest, hardware=replace(config.hardware, name="")))
    if isinstance(config.hardware.element_bytes, AssumedBytes):  # the network decides
        decides["hardware"]["element_bytes"] = None
    key = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:KEY]
    return BatchJob(key, digest, config, _labels(config, chosen, setting, axes))


def _put(data: dict[str, Any], path: str, value: Any, where: str) -> None:
    """Set a field by its path, `search.slack`."""
    *parents, name = path.split(".")
    for parent in parents:
        data = data.setdefault(parent, {})
        if not isinstance(data, dict):
            raise InvalidConfig(
                one_line(
                    f"{where}: {path}: found no mapping in {parent}; accepted: a field of a configuration"
                )
            )
    data[name] = value


def _read_alone(config: Config) -> Config:
    """The configuration with the default of each field that none of its methods reads.

    Jobs that differ in those fields alone are one job.
    """
    methods = {config.search.method, *config.search.compare}
    unread = {
        name: getattr(SearchConfig, name) for name, readers in READ_BY.items() if methods.isdisjoint(readers)
    }
    return replace(config, search=replace(config.search, **unread), out=None)


def _labels(config: Config, chosen: Mapping[str, Any], setting: str, axes: list[_Axis]) -> dict[str, Label]:
    search = config.search
    chip = chosen.get("hardware")
    draws = not {search.method, *search.compare}.isdisjoint(READ_BY["seed"])
    return {
        "network": str(chosen.get("networks", config.model)),
        "setting": setting or None,
        "hardware": chip if isinstance(chip, str) else config.hardware.name,
        "buffer_bytes": config.hardware.buffer_bytes,
        "element_bytes": int(config.hardware.element_bytes),
        "scheme": config.scheme,
        "method": search.method,
        "objective": config.objective,
        "seed": search.seed if draws else None,
        **{axis.name: _text(chosen[axis.name]) for axis in axes if axis.name not in PATHS},
    }


def _text(value: Any) -> Any:
    """A value as a row has it."""
    if isinstance(value, str | int | float | bool | None):
        return value
    return json.dumps(value)


def by_network(jobs: list[BatchJob]) -> Iterator[int]:
    """Positions of jobs, those of one network together."""
    first: dict[tuple[str, str, str], int] = {}
    places = [
        first.setdefault((job.content, job.config.rules, repr(job.config.input_shapes)), len(first))
        for job in jobs
    ]
    yield from sorted(range(len(jobs)), key=places.__getitem__)
