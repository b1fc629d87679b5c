"""Configuration files: YAML, validated field by field."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from lfopt.app.documents import MAX_TEXT, read_yaml
from lfopt.app.options import (
    GUIDANCE,
    JOINING,
    MAX_BYTES,
    METHOD,
    PROFILE,
    PROPOSE,
    SLACK,
    SURROGATE,
    BandRowsOption,
    BudgetOption,
    GuidanceOption,
    JobSecondsOption,
    MaxCyclesOption,
    MaxEnergyOption,
    MaxRecomputeOption,
    Method,
    MethodOption,
    ObjectiveOption,
    ProposeOption,
    RulesOption,
    SchemeOption,
    SeedOption,
    TrafficOption,
)
from lfopt.app.sizes import parse_size
from lfopt.ir import UNLIMITED, Constraints, Energy, Hardware, InvalidConfig
from lfopt.ir.names import one_line
from lfopt.ir.sizes import read_number
from lfopt.planning.defaults import EPILOGUE, MAX_RECOMPUTE, SCHEME, TRAFFIC
from lfopt.planning.modes import SCHEMES
from lfopt.rewrite import DEFAULT as RULES
from search.methods import taking
from search.objectives import Caps, Objective, ObjectiveName
from search.options import SearchOptions

T = TypeVar("T")
MAX_SECONDS = 1e9
MAX_SIZE = 10**9  # of an axis
MAX_NAME = 100  # characters of a field that is looked for among the known ones
MOST_RECOMPUTE = 1000
CAPS = ("max_dram_bytes",)  # sizes that may be in KB, MB and GB
PREDICTED = ("lbdf", "brr", "resident")  # schemes that a validity predictor ships for
SAMPLING = taking("split")  # methods that break groups
LEARNED = ("gnne", "pg", "rg")  # guidance that needs a predictor of the scheme
# beside the packages, in a checkout as in a wheel
INSTALLED = Path(__file__).resolve().parents[2] / "configs"


def share(value: object) -> object:
    """A share as it is written: 0.001, or 0.1%."""
    if isinstance(value, str) and (
        percentage := re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%", value.strip())
    ):
        return float(percentage[1]) / 100
    return value


@dataclass(frozen=True)
class SearchConfig:
    """How to search."""

    method: MethodOption = METHOD
    # further methods, whose results are printed beside the plan; without guidance
    compare: tuple[Method, ...] = ()
    seed: SeedOption = SearchOptions.seed
    budget: BudgetOption = SearchOptions.budget
    time_limit: JobSecondsOption | None = None
    guidance: GuidanceOption = GUIDANCE
    profile: Annotated[bool, PROFILE] = False
    propose: ProposeOption = PROPOSE
    objective: ObjectiveOption | None = None  # None: see `Config.objective`
    surrogate: Annotated[bool, SURROGATE] = False
    slack: Annotated[float | None, BeforeValidator(share), SLACK] = None
    max_dram_bytes: Annotated[int | None, MAX_BYTES] = None
    max_cycles: MaxCyclesOption | None = None
    max_energy_uj: MaxEnergyOption | None = None

    @property
    def wanted(self) -> Objective:
        """What is minimised, below which caps: bytes where no objective is given."""
        energy = None if self.max_energy_uj is None else round(self.max_energy_uj * 1e6)
        return Objective(self.objective or Objective.name, Caps(self.max_dram_bytes, self.max_cycles, energy))

    def __post_init__(self) -> None:
        if self.method not in SAMPLING and self.guidance != "none":
            raise InvalidConfig(
                f"search.guidance: found {self.guidance} with method {self.method}, which breaks no groups; "
                f"accepted: none, or methods {', '.join(SAMPLING)}"
            )
        if self.profile and self.method not in (methods := taking("latency")):
            raise InvalidConfig(
                f"search.profile: found true with method {self.method}; accepted: false, or method "
                f"{' or '.join(methods)}"
            )
        if self.propose != "none" and self.method not in (methods := taking("start")):
            raise InvalidConfig(
                f"search.propose: found {self.propose} with method {self.method}; accepted: none, or methods "
                f"{', '.join(methods)}"
            )
        if self.wanted != Objective() and self.method != "exact":
            given = f"objective {self.wanted.name}" if self.wanted.name != "bytes" else "a cap"
            raise InvalidConfig(
                f"search.method: found {self.method} with {given}; accepted: exact, or objective bytes "
                "without caps"
            )
        if self.surrogate and (
            self.wanted == Objective()
            or self.objective in ("energy", "edp", "balanced")
            or self.max_energy_uj is not None
        ):
            given = "a cap on energy" if self.max_energy_uj is not None else f"objective {self.wanted.name}"
            raise InvalidConfig(
                f"search.surrogate: found true with {given}; accepted: false, or objective cycles, or a cap "
                "on cycles, without energy"
            )
        if self.objective == "balanced" and self.wanted.caps._replace(cycles=None) != Caps():
            raise InvalidConfig(
                "search.objective: found balanced with a cap on bytes or energy; accepted: a cap on cycles, "
                "or objective bytes, cycles, energy or edp"
            )
        if self.slack is not None and not 0 <= self.slack <= 1:
            raise InvalidConfig(
                f"search.slack: found {self.slack}; accepted: a share of the bytes such as 0.1%, up to 100%"
            )
        caps = {
            "max_dram_bytes": self.max_dram_bytes,
            "max_cycles": self.max_cycles,
            "max_energy_uj": self.max_energy_uj,
        }
        for name, cap in caps.items():
            if cap is not None and not 0 < cap <= UNLIMITED:
                raise InvalidConfig(f"search.{name}: found {cap}; accepted: a number above 0, up to 2**40")
        least = {"seed": (self.seed, 0), "budget": (self.budget, 1)}
        for name, (value, low) in least.items():
            if value < low:
                raise InvalidConfig(
                    f"search.{name}: found {value}; accepted: a whole number of at least {low}"
                )
        if self.time_limit is not None and not 0 < self.time_limit < MAX_SECONDS:
            raise InvalidConfig(f"search.time_limit: found {self.time_limit}; accepted: seconds above 0")


@dataclass(frozen=True)
class Config:
    """One job: a network, a chip, and what to do with them."""

    model: str  # an ONNX file, or zoo:NAME
    hardware: Hardware  # the chip
    scheme: SchemeOption = SCHEME
    traffic: TrafficOption = TRAFFIC
    epilogue: Annotated[bool, JOINING] = EPILOGUE
    max_recompute: MaxRecomputeOption = MAX_RECOMPUTE
    band_rows: BandRowsOption = None
    rules: RulesOption = RULES
    together: tuple[tuple[str, ...], ...] = ()  # sets of operators, by name, each in one group
    alone: tuple[str, ...] = ()  # operators that are a group of their own
    cut: tuple[tuple[str, ...], ...] = ()  # sets of operators, no two of which share a group
    mode: dict[str, str] = field(default_factory=dict)  # operator: mode in which its group runs
    nests: dict[str, str] = field(default_factory=dict)  # operator: parts of the nest of its group
    # of inputs, where the file leaves sizes open
    input_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    search: SearchConfig = field(default_factory=SearchConfig)  # how to search
    out: str | None = None  # folder of plan.json and simplified.onnx; None: runs/ and the network's name

    @property
    def constraints(self) -> Constraints:
        """What the plan must keep to."""
        return Constraints(self.together, self.alone, self.cut, self.mode, self.nests)

    @property
    def objective(self) -> ObjectiveName:
        """What the plan is to have little of: as given, else balanced, where a job can be for that.

        It is for bytes by methods that count bytes alone and beside them, in other traffic, below caps on
        bytes or energy, where a surrogate is asked, and with a second level of memory.
        """
        search = self.search
        if search.objective is not None:
            return search.objective
        by_exact_search = search.method == "exact" and not search.compare and not search.surrogate
        capped = search.wanted.caps._replace(cycles=None) != Caps()
        if by_exact_search and not capped and self.traffic == "tiled" and not self.hardware.l2_bytes:
            return "balanced"
        return Objective.name

    @property
    def recompute_allowed(self) -> float:
        """Multiply-accumulates allowed over the network's own, as a ratio: 1 in schemes without copies."""
        if SCHEMES[self.scheme].copies:
            return self.max_recompute
        return 1.0

    def __post_init__(self) -> None:
        if isinstance(self.band_rows, int) and self.band_rows < 1:
            raise InvalidConfig(
                f"band_rows: found {self.band_rows}; accepted: a whole number of at least 1, or max"
            )
        if self.search.wanted != Objective() and self.traffic != "tiled":
            given = f"{self.traffic} with objective {self.search.wanted.name}"
            raise InvalidConfig(f"traffic: found {given}; accepted: tiled, or objective bytes without caps")
        if not 1 <= self.max_recompute <= MOST_RECOMPUTE:
            raise InvalidConfig(f"max_recompute: found {self.max_recompute}; accepted: 1 to {MOST_RECOMPUTE}")
        for name, value in (("model", self.model), ("out", self.out)):
            if value is not None and not (0 < len(value) <= MAX_TEXT and "\0" not in value):
                raise InvalidConfig(
                    f"{name}: found {value!r}; accepted: "
                    f"{'a file or zoo:NAME' if name == 'model' else 'a folder'}"
                )
        for name, shape in self.input_shapes.items():
            if not all(0 <= size < MAX_SIZE for size in shape):
                raise InvalidConfig(
                    f"input_shapes.{name}: found {list(shape)}; accepted: sizes from 0 to {MAX_SIZE - 1}"
                )
        if self.search.guidance in LEARNED and self.scheme not in PREDICTED:
            accepted = f"none, random or analytic, or scheme {' or '.join(PREDICTED)}"
            raise InvalidConfig(
                f"search.guidance: found {self.search.guidance} with scheme {self.scheme}, which has no "
                f"predictor; accepted: {accepted}"
            )


def find_config(name: str, option: str = "--config", folder: Path = INSTALLED) -> Path:
    """A configuration file: as given, else an installed one in `folder`, whose `.yaml` may be left out.

    Raises InvalidConfig where there is none, with the closest name among the installed ones.
    """
    given = Path(name)
    bare = given.parent == Path() and not given.is_absolute()
    for path in (given, folder / given, folder / f"{name}.yaml") if bare else (given,):
        if path.is_file():
            return path
    listed = sorted(p.name for p in folder.glob("*.yaml"))
    close = difflib.get_close_matches(given.name, listed, 1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise InvalidConfig(f"{option} {name}: no such file; {hint}installed: {', '.join(listed)}")


def find_hardware(name: str, option: str = "--hardware", beside: Path = Path()) -> Path:
    """The file of a chip: as given, relative to a folder, else an installed one. Raises InvalidConfig."""
    given = beside / name
    if given.exists():
        return given
    return find_config(name, option, INSTALLED / "hardware")


def load_config(path: Path) -> Config:
    """Read and validate a configuration file. Raises InvalidConfig.

    Paths in it are relative to its folder; its hardware may be an installed one by name.
    """
    data = read_yaml(path)
    hardware = data.get("hardware")
    if isinstance(hardware, str):
        try:
            data["hardware"] = read_yaml(find_hardware(hardware, "file", path.parent))
        except InvalidConfig as error:
            raise InvalidConfig(one_line(f"{path}: hardware: {error}")) from None
    model = data.get("model")
    if isinstance(model, str) and model and not model.startswith("zoo:"):
        data["model"] = str(path.parent / model)
    return validate(Config, data, str(path))


def load_hardware(path: Path) -> Hardware:
    """Read and validate a hardware description. Raises InvalidConfig."""
    return validate(Hardware, read_yaml(path), str(path))


def validate(kind: type[T], data: object, where: str) -> T:
    """A dataclass from plain data.

    Raises InvalidConfig naming the path of the field, what was found and what is accepted.
    """
    if not isinstance(data, dict):
        raise InvalidConfig(one_line(f"{where}: found {data!r}; accepted: a mapping of fields"))
    try:
        plain = _checked_fields(kind, dict(data), "")
        _check_text(plain, "")
        return _adapter(kind).validate_json(json.dumps(plain), strict=True)
    except InvalidConfig as error:
        raise InvalidConfig(one_line(f"{where}: {error}")) from None
    except RecursionError:
        raise InvalidConfig(one_line(f"{where}: nested too deeply")) from None
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        given = "nothing" if first["type"] == "missing" else repr(first["input"])
        raise InvalidConfig(
            one_line(f"{where}: {path}: found {given}; accepted: {_accepted(first)}")
        ) from None


@functools.cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    """Made once: that takes longer than most files."""
    return TypeAdapter(kind)


@functools.cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _check_text(value: object, path: str) -> None:
    """Refuse text that UTF-8 cannot hold: half a surrogate pair, from an escape or an odd file name."""
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise InvalidConfig(f"{path}: found {value!r}; accepted: text in UTF-8")
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_text(name, path or "a name")
            _check_text(inner, f"{path}.{name}" if path else name)
    if isinstance(value, list | tuple):
        for k, inner in enumerate(value):
            _check_text(inner, f"{path}.{k}")


ACCEPTED = {  # by pydantic's name of the error, where its own words are those of JSON or of Python
    "missing": "a value for this field",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "dataclass_type": "a mapping of fields",
}


def _accepted(error: Mapping[str, Any]) -> str:
    message = str(error["msg"])
    for prefix in ("Input should be ", "Value error, "):
        message = message.removeprefix(prefix)
    return ACCEPTED.get(error["type"], message)


def _checked_fields(kind: type, data: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Fields as plain numbers and text: sizes such as 256KiB and hardware's units are read.

    Raises InvalidConfig for fields that are missing or unknown, with the closest known one.
    """
    types = _types(kind)
    known = [f.name for f in fields(kind)]
    for name, value in data.items():
        path = f"{prefix}{name}"
        if name not in known:
            close = difflib.get_close_matches(name[:MAX_NAME], known, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise InvalidConfig(f"{path}: unknown field; {hint}accepted: {', '.join(known)}")
        if is_dataclass(types[name]) and isinstance(types[name], type) and isinstance(value, dict):
            data[name] = _checked_fields(types[name], dict(value), f"{path}.")
        elif (
            get_origin(types[name]) is tuple
            and is_dataclass(item := get_args(types[name])[0])
            and isinstance(value, list)
        ):
            data[name] = [
                _checked_fields(item, dict(v), f"{path}.{k}.")
                if isinstance(v, dict) and isinstance(item, type)
                else v
                for k, v in enumerate(value)
            ]
        elif kind in (Hardware, Energy) and types[name] not in (str, bool, Energy):
            data[name] = read_number(name, value, path)
        elif name.endswith("_bytes") and isinstance(value, str):
            data[name] = parse_size(value, path, decimal=name in CAPS)
    required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    for name in required:
        if name not in data:
            raise InvalidConfig(
                f"{prefix}{name}: missing; required: {', '.join(prefix + r for r in required)}"
            )
    return data
