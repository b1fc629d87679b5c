"""Real networks, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from lfopt.frontend import load
from lfopt.ir import Graph

MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"


def network(name: str) -> Graph:
    """One of the real networks, where they are at hand."""
    path = MODELS / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return load(path)
