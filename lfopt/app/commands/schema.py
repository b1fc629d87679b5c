"""lfopt schema: what plan.json and the files that lfopt reads must look like."""

from __future__ import annotations

import json
import sys

from lfopt.app.schema import Document
from lfopt.app.schema import schema as schema_of


def schema(document: Document) -> None:
    """Print the JSON Schema (Draft 2020-12) of a file, for editors and programs that write or check such files.

    Parameters
    ----------
    document
        plan: plan.json; hardware: a chip (YAML); config: a job of `lfopt search` (YAML).
    """
    sys.stdout.write(json.dumps(schema_of(document), indent=2) + "\n")
