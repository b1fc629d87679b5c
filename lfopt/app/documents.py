"""Files of plain data, YAML and JSON, read as hostile input: errors are one line that says where."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

import yaml
from yaml.reader import ReaderError

from lfopt.ir import InvalidConfig, LfoptError
from lfopt.ir.names import one_line

MAX_BYTES = (1 << 31) - 1  # of any file
MAX_YAML_BYTES = 1 << 20
MAX_NODES = 10_000  # of a YAML file: scalars and collections, aliases expanded
MAX_DEPTH = 64  # of collections in collections
MAX_TEXT = 4096  # characters of a scalar: no path is longer
MAX_DIGITS = 40  # of a whole number

TAG = "tag:yaml.org,2002:"
# what plain ones stand for, as in YAML 1.2: yes, off, 0x10, 1_000, 1:30, 2024-01-01 and << are text
SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9][0-9]*)",
    "float": r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}


def opened(path: Path, invalid: type[LfoptError] = InvalidConfig) -> BinaryIO:
    """A regular file, open to be read. Raises `invalid`: pipes and devices may never end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise invalid(
                one_line(
                    f"{path}: found {'a folder' if path.is_dir() else 'a pipe or device'}; accepted: a file"
                )
            )
        return path.open("rb")
    except (OSError, ValueError) as error:
        # ValueError: a null character in the path, or half a surrogate pair
        raise invalid(one_line(f"{path}: {getattr(error, 'strerror', None) or error}")) from None


def read_bytes(path: Path, limit: int = MAX_BYTES, invalid: type[LfoptError] = InvalidConfig) -> bytes:
    """A regular file of at most `limit` bytes. Raises `invalid`."""
    with opened(path, invalid) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise invalid(one_line(f"{path}: found more than {limit:,} bytes; accepted: up to that"))
    return data


def read_json(path: Path, invalid: type[LfoptError] = InvalidConfig) -> Any:
    """Plain data from a JSON file.

    Raises `invalid`, too for names given twice and for numbers that are none.
    """
    try:
        return parse_json(read_bytes(path, invalid=invalid))
    except ValueError as error:
        raise invalid(one_line(f"{path}: not JSON: {error}")) from None


def parse_json(data: bytes) -> Any:
    """Plain data from JSON in UTF-8. Raises ValueError as `read_json` raises `invalid`."""

    def whole(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            raise ValueError(f"found a number of {len(digits)} digits; accepted: up to {MAX_DIGITS}")
        return int(digits)

    def no_number(name: str) -> float:
        raise ValueError(f"found {name}; accepted: numbers")

    try:
        return json.loads(
            data.decode("utf-8"), object_pairs_hook=_members, parse_int=whole, parse_constant=no_number
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(str(error)[:200]) from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"found {next(name for k, name in enumerate(names) if name in names[:k])!r} twice in an object"
        )
    return members


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping of fields from a YAML file. Raises InvalidConfig with the line."""
    data = read_bytes(path, MAX_YAML_BYTES)
    try:
        loader = _Loader(data.decode("utf-8"))
        node = loader.get_single_node()
        fields = None if node is None else _plain(node)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidConfig(
            one_line(f"{path}: line {line}: found byte {data[error.start]:#x}; accepted: text in UTF-8")
        ) from None
    except ReaderError as error:
        line = data[: error.position].count(b"\n") + 1
        character = int(error.character)
        raise InvalidConfig(
            one_line(f"{path}: line {line}: found character U+{character:04X}; accepted: text")
        ) from None
    except _RefusedYaml as error:
        raise InvalidConfig(one_line(f"{path}: line {error.mark.line + 1}: {error}")) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f"{error.context}: " if error.context else ""
        raise InvalidConfig(
            one_line(f"{path}: line {mark.line + 1 if mark else 1}: not YAML: {context}{error.problem}")
        ) from None
    if not isinstance(fields, dict):
        kind = {type(None): "nothing", list: "a list"}.get(type(fields), "a single value")
        raise InvalidConfig(one_line(f"{path}: found {kind}; accepted: a mapping of fields"))
    return fields


class _RefusedYaml(ValueError):
    """YAML that is no data of ours."""

    def __init__(self, message: str, mark: yaml.Mark) -> None:
        super().__init__(message)
        self.mark = mark


class _Loader(yaml.SafeLoader):
    """Composes nodes; their number and depth are bounded before anything is made of them."""

    def __init__(self, text: str) -> None:
        self.depth = 0
        self.nodes: dict[yaml.Node, int] = {}  # of a finished node and all in it, aliases expanded
        super().__init__(text)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        event = self.peek_event()
        mark = event.start_mark
        self.depth = self.depth + 1
        if self.depth > MAX_DEPTH:
            raise _RefusedYaml(f"found collections {self.depth} deep; accepted: up to {MAX_DEPTH}", mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        assert node is not None
        if isinstance(event, yaml.AliasEvent):
            if node not in self.nodes:
                raise _RefusedYaml(f"found alias {event.anchor!r} inside of what it stands for", mark)
        elif isinstance(node, yaml.ScalarNode):
            if len(node.value) > MAX_TEXT:
                raise _RefusedYaml(
                    f"found {len(node.value):,} characters; accepted: up to {MAX_TEXT:,}", mark
                )
            self.nodes[node] = 1
        else:
            inside = (
                part for child in node.value for part in (child if isinstance(child, tuple) else (child,))
            )
            self.nodes[node] = 1 + sum(self.nodes[part] for part in inside)
        if self.nodes[node] > MAX_NODES or len(self.nodes) > MAX_NODES:
            raise _RefusedYaml(
                f"found more than {MAX_NODES:,} values, aliases expanded; accepted: up to that", mark
            )
        return node

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            if implicit[0]:
                return TAG + _kind(value)
            return f"{TAG}str"
        if kind is yaml.SequenceNode:
            return f"{TAG}seq"
        return f"{TAG}map"


def _kind(text: str) -> str:
    return next((kind for kind, pattern in SCALARS.items() if re.fullmatch(pattern, text)), "str")


def _plain(node: yaml.Node) -> Any:
    """What a node stands for. Raises _RefusedYaml for what JSON does not have."""
    if isinstance(node, yaml.MappingNode) and node.tag == f"{TAG}map":
        fields: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag != f"{TAG}str" or not isinstance(key, yaml.ScalarNode):
                name, hint = (
                    (key.value, f", in quotes: {key.value!r}")
                    if isinstance(key, yaml.ScalarNode)
                    else ("a collection", "")
                )
                raise _RefusedYaml(
                    f"found {name} as the name of a field; accepted: text{hint}", key.start_mark
                )
            if key.value in fields:
                raise _RefusedYaml(f"found field {key.value!r} twice", key.start_mark)
            fields[key.value] = _plain(value)
        return fields
    if isinstance(node, yaml.SequenceNode) and node.tag == f"{TAG}seq":
        return [_plain(value) for value in node.value]
    kind = node.tag.removeprefix(TAG)
    if not isinstance(node, yaml.ScalarNode) or kind not in ("str", _kind(node.value)):
        tags = ", ".join(f"!!{name}" for name in ("map", "seq", "str", *SCALARS))
        raise _RefusedYaml(
            f"found tag {node.tag!r} here; accepted: {tags}, where the value is one", node.start_mark
        )
    if kind == "int" and len(node.value) > MAX_DIGITS:
        raise _RefusedYaml(
            f"found a number of {len(node.value)} digits; accepted: up to {MAX_DIGITS}", node.start_mark
        )
    if kind in ("null", "bool"):
        if kind == "null":
            return None
        return node.value.lower() == "true"
    if kind == "float":
        return float(node.value.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if kind == "int":
        return int(node.value)
    return node.value
