"""lfopt schema: what plan.json and the files that lfopt reads must look like.

Raises InvalidConfig for documents that have no schema.
"""

from __future__ import annotations

import json

from lfopt.app.schema import TYPES
from lfopt.app.schema import schema as schema_of
from lfopt.app.screen import write
from lfopt.ir import InvalidConfig
from lfopt.ir.names import one_line


def schema(*document: str) -> None:
    """Print the JSON Schema (Draft 2020-12) of a file that lfopt reads, or of what a command says as JSON.

    It is for programs that write, read or check such.

    Example: lfopt schema search

    Parameters
    ----------
    document
        plan: plan.json; hardware: a chip (YAML); config: a job of `lfopt search` (YAML); jobs: those of
        `lfopt batch` (YAML); or a command, such as search or zoo list.
    """
    name = " ".join(document)
    if name not in TYPES:
        raise InvalidConfig(one_line(f"lfopt schema: found {name!r}; accepted: {', '.join(TYPES)}"))
    write(json.dumps(schema_of(name), indent=2) + "\n")
