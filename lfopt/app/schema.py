"""JSON Schemas (Draft 2020-12) of the files that lfopt reads and of commands' answers, from their types.

Fields are described by their help (`lfopt.app.options`), or by the comments beside them in the source.
What a schema cannot say (sums that must agree, places that must not overlap) is left to `lfopt check`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from itertools import takewhile
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from lfopt.app.answers.table import ANSWERS, name_of
from lfopt.app.batch.jobs import BatchFile
from lfopt.app.config import CAPS, Config
from lfopt.app.options import help_of
from lfopt.ir import SCHEMA, UNLIMITED, Carry, Compute, Hardware, Loop, Plan, PlannedGroup, Transfer
from lfopt.ir.hardware import MAX_PJ, MAX_TEXT, TEXTS, AssumedBytes, bounds
from lfopt.ir.listing import COMPUTE, LOOP, TRANSFER
from lfopt.ir.names import PLAIN
from lfopt.ir.sizes import EXAMPLES, NUMBER, QUANTITIES, quantity
from lfopt.planning.modes import MODES, SCHEMES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NUMBER_TEXT = NUMBER.replace("?:", "")
SIZE = rf"^(unlimited|{NUMBER_TEXT}\s*(B|[kKmMgG]([iI][bB])?)?)$"  # as lfopt.ir.sizes reads them
SIZE_TEXT = {
    "type": "string",
    "pattern": SIZE,
    "description": "a size such as 262144, 256KiB or 4MiB, or unlimited",
}
TRAFFIC = SIZE.replace("[iI]", "[iI]?")  # KB, MB and GB too
IN_JSON = {"None": "null", "True": "true", "False": "false"}
TITLES: dict[str, str] = {
    "plan": "plan.json",
    "hardware": "Hardware description",
    "config": "Configuration of lfopt search",
    "jobs": "Jobs of lfopt batch",
}
FILES: dict[str, type] = {"plan": Plan, "hardware": Hardware, "config": Config, "jobs": BatchFile}
TYPES = FILES | ANSWERS
TABLES: dict[tuple[type, str], tuple[str, ...]] = {
    (Plan, "scheme"): tuple(SCHEMES),
    (PlannedGroup, "mode"): tuple(MODES),
}  # texts that must be in a table


def dataclasses_of(kinds: Iterable[type]) -> list[type]:
    """These dataclasses and those that their fields hold, each once."""
    classes: list[type] = []
    waiting: list[Any] = [*kinds]
    while waiting:
        kind = waiting.pop(0)
        if isinstance(kind, type) and is_dataclass(kind):
            if kind not in classes:
                classes.append(kind)
                waiting += get_type_hints(kind).values()
        else:
            waiting += get_args(kind)
    return classes


# the steps stand in plan.json as text
CLASSES = dataclasses_of((*TYPES.values(), Transfer, Carry, Compute, Loop))
_OF_KIND = {kind.__name__: kind for kind in CLASSES}
Schema = dict[str, Any]


@dataclass(frozen=True)
class FieldText:
    """A field of a file as documentation names it."""

    name: str
    type: str
    default: str  # as YAML writes it; empty where a value is required
    text: str  # the comment beside the field


def schema(document: str) -> Schema:
    """The JSON Schema of a file in FILES, or of a command's answer in ANSWERS."""
    if document in ANSWERS:
        return _answered(document)
    described, definitions = _described(TYPES[document])
    if document == "jobs":  # which holds chips without naming their type
        chip, inside = _described(Hardware)
        definitions |= inside | {"Hardware": chip}
    _bounded(definitions["Hardware"], definitions["Energy"])
    if document == "plan":
        _as_written(described, definitions["PlannedGroup"])
    else:
        for definition in definitions.values():
            _with_units(definition)
    if document == "config":
        beside = {
            "type": "string",
            "description": "a file, relative to the folder of the configuration",
        }
        described["properties"]["hardware"] = {"anyOf": [{"$ref": "#/$defs/Hardware"}, beside]}
    if document == "jobs":
        described["properties"]["hardware"]["items"] = {
            "anyOf": [{"$ref": "#/$defs/Hardware"}, {"type": "string"}]
        }
        described["properties"]["buffers"]["items"] = {
            "anyOf": [{"type": "integer", "minimum": 1, "maximum": UNLIMITED}, SIZE_TEXT]
        }
    del definitions[TYPES[document].__name__]
    reached = {name: definitions[name] for name in sorted(_reached(described, definitions))}
    head = {"$schema": DIALECT, "title": TITLES[document]}
    return (
        head
        | {key: value for key, value in described.items() if key != "title"}
        | ({"$defs": reached} if reached else {})
    )


class _Defaults(GenerateJsonSchema):
    def encode_default(self, dft: Any) -> Any:
        return super().encode_default(int(dft) if isinstance(dft, AssumedBytes) else dft)


def _described(kind: type) -> tuple[Schema, dict[str, Schema]]:
    """The schema of a type, and of all that are in it, itself included, with the words of their source."""
    described = TypeAdapter(kind).json_schema(schema_generator=_Defaults)
    definitions: dict[str, Schema] = described.pop("$defs", {})
    definitions[kind.__name__] = described
    for name, definition in definitions.items():
        if name in _OF_KIND:
            _describe(definition, _OF_KIND[name])
    return described, definitions


def _answered(command: str) -> Schema:
    described, definitions = _described(ANSWERS[command])
    named = {
        "schema": {"const": name_of(command), "description": "the schema of this answer, and its version"}
    }
    described["properties"] = named | described["properties"]
    described["required"] = ["schema", *described.get("required", ())]
    del definitions[ANSWERS[command].__name__]
    head = {"$schema": DIALECT, "title": f"lfopt {command} --json"}
    return (
        head
        | {key: value for key, value in described.items() if key != "title"}
        | ({"$defs": dict(sorted(definitions.items()))} if definitions else {})
    )


def described(kind: type) -> Iterator[FieldText]:
    """Name, type, default and description of every field of a dataclass, in order."""
    comments = _comments(kind)
    types = _annotations(kind)
    for column in fields(kind):
        if column.default is not MISSING:
            default = _yaml(column.default)
        else:
            if column.default_factory is MISSING:
                default = ""
            elif is_dataclass(column.default_factory):
                default = "see below"
            else:
                default = "none given"
        text = ", ".join(TABLES[kind, column.name]) if (kind, column.name) in TABLES else types[column.name]
        yield FieldText(column.name, text, default, comments.get(column.name, ""))


def _yaml(value: object) -> str:
    if value is None or isinstance(value, bool):
        return IN_JSON[str(value)]
    if value == () or value == "":
        return "empty"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def _describe(definition: Schema, kind: type) -> None:
    """Descriptions of an object and its fields; no other fields are accepted."""
    definition["additionalProperties"] = False
    if text := inspect.getdoc(kind):
        definition["description"] = " ".join(text.split("\n\n")[0].split())
    for name, comment in _comments(kind).items():
        if comment and name in definition["properties"]:
            definition["properties"][name]["description"] = comment
    for name, described_field in definition["properties"].items():
        described_field.pop("title", None)
        if (kind, name) in TABLES:
            described_field["enum"] = [*TABLES[kind, name]]
    definition.pop("title", None)


def _as_written(plan: Schema, group: Schema) -> None:
    """What differs between a Plan and its file: the name of the schema, and steps that are lines of text."""
    named = {"schema": {"const": SCHEMA, "description": "the schema of this file, and its version"}}
    plan["properties"] = named | plan["properties"]
    plan["required"] = ["schema", *plan["required"]]
    lines = "|".join(_portable(pattern.pattern) for pattern in (TRANSFER, COMPUTE, LOOP))
    group["properties"]["steps"] = {
        "type": "array",
        "items": {"type": "string", "pattern": rf"^\s*({lines}|\}})\s*$"},
        "description": group["properties"]["steps"]["description"],
    }
    group["properties"]["nodes"]["items"]["pattern"] = f"^{PLAIN.pattern}$"


def _portable(pattern: str) -> str:
    """A pattern as ECMA-262 has it: its groups have no names."""
    return re.sub(r"\?P<\w+>", "", pattern)


def _bounded(hardware: Schema, energy: Schema) -> None:
    """The ranges of numbers, which the types check themselves."""
    for name, described_field in hardware["properties"].items():
        for option in (described_field, *described_field.get("anyOf", ())):
            if option.get("type") in ("integer", "number"):
                option |= dict(zip(("minimum", "maximum"), bounds(name), strict=True))
        if name in TEXTS:
            described_field["maxLength"] = MAX_TEXT
    for described_field in energy["properties"].values():
        for option in (described_field, *described_field.get("anyOf", ())):
            if option.get("type") == "number":
                option |= {"minimum": 0, "maximum": MAX_PJ}


def _with_units(definition: Schema) -> None:
    """Fields that count bytes are read from text such as 256KiB, too, and what else has a unit likewise."""
    for name, described_field in definition.get("properties", {}).items():
        if not (ending := quantity(name)):
            continue
        if ending == "_bytes":
            text = {
                "type": "string",
                "pattern": TRAFFIC if name in CAPS else SIZE,
                "description": "a size such as 262144, 256KiB or 4MiB, or unlimited",
            }
        else:
            units = "|".join(QUANTITIES[ending])
            text = {
                "type": "string",
                "pattern": rf"^{NUMBER_TEXT}\s*({units})?$",
                "description": f"with a unit, such as {EXAMPLES[ending]}",
            }
        if "anyOf" in described_field:
            described_field["anyOf"].append(text)
        else:
            number = {
                key: described_field.pop(key)
                for key in ("type", "minimum", "maximum")
                if key in described_field
            }
            described_field["anyOf"] = [number, text]


def _reached(part: object, definitions: dict[str, Schema]) -> set[str]:
    """Definitions that a schema refers to, directly or through others."""
    reached: set[str] = set()
    open_parts = [part]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, dict):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in reached:
                reached.add(name)
                open_parts.append(definitions[name])
            open_parts += part.values()
        elif isinstance(part, list):
            open_parts += part
    return reached


@functools.cache
def _declarations(kind: type) -> tuple[tuple[ast.AnnAssign, ...], tuple[str, ...]]:
    """The fields of a dataclass as its source declares them, and the lines of that source."""
    source = textwrap.dedent(inspect.getsource(kind))
    (declared,) = ast.parse(source).body
    assert isinstance(declared, ast.ClassDef)
    return tuple(node for node in declared.body if isinstance(node, ast.AnnAssign)), tuple(
        source.splitlines()
    )


def _comments(kind: type) -> dict[str, str]:
    """The help of each field of a dataclass that is an option; else the comment behind it, or right above."""
    declared, lines = _declarations(kind)
    hints = get_type_hints(kind, include_extras=True)
    comments: dict[str, str] = {}
    for node in declared:
        rest = lines[(node.end_lineno or 0) - 1].encode()[node.end_col_offset or 0 :].decode()
        above = takewhile(
            lambda line: line.startswith("#"), map(str.strip, reversed(lines[: node.lineno - 1]))
        )
        parts = [rest.strip()] if rest.strip() else reversed(list(above))
        comment = " ".join(part.removeprefix("#").strip() for part in parts)
        name = ast.unparse(node.target)
        comments[name] = re.sub(
            r"\b(None|True|False)\b", lambda word: IN_JSON[word[0]], help_of(hints[name]) or comment
        )
    return comments


def _annotations(kind: type) -> dict[str, str]:
    """The type of each field in words of JSON."""
    declared, _ = _declarations(kind)
    hints = get_type_hints(kind)
    return {
        (name := ast.unparse(node.target)): _in_words(hints[name], ast.unparse(node.annotation))
        for node in declared
    }


def _in_words(hint: Any, text: str) -> str:
    plain = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    if hint in plain:
        return plain[hint]
    if isinstance(hint, type) and is_dataclass(hint):
        return "object"
    options = get_args(hint)
    if options and all(isinstance(option, str) for option in options):
        return ", ".join(options)
    if type(None) in options:
        return f"{_in_words(options[0], text)} or null"
    return {"dict": "mapping", "tuple": "list"}.get(
        text.partition("[")[0], plain.get(options[0], text) if options else text
    )
