"""Boosted regression trees as arrays, in NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True, eq=False)
class Trees:
    """A sum of regression trees. Nodes are numbered per tree; a leaf is its own child on both sides."""

    base: np.ndarray  # (1,) float32: what the trees are added to
    column: np.ndarray  # (trees, nodes) int16: the column that a node looks at
    threshold: np.ndarray  # (trees, nodes) float32: at or below it to the left
    left: np.ndarray  # (trees, nodes) int16
    right: np.ndarray  # (trees, nodes) int16
    value: np.ndarray  # (trees, nodes) float32: of a leaf
    depth: np.ndarray  # (1,) int16: of the deepest tree

    def __call__(self, columns: np.ndarray) -> np.ndarray:
        """(rows,) float64, of (rows, columns) float32."""
        trees = np.arange(len(self.column))[:, None]
        rows = np.arange(len(columns))
        at = np.zeros((len(trees), len(rows)), np.int64)
        for _ in range(int(self.depth[0])):
            goes_left = columns[rows, self.column[trees, at]] <= self.threshold[trees, at]
            at = np.where(goes_left, self.left[trees, at], self.right[trees, at])
        return self.value[trees, at].sum(0, dtype=np.float64) + float(self.base[0])

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """Arrays of a file: prefix.field -> the field, in its shape."""
        return {f"{prefix}.{field.name}": getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], prefix: str) -> Trees:
        """Trees of a file's arrays, in the shapes of the fields. Raises KeyError for one that is missing."""
        return cls(**{field.name: arrays[f"{prefix}.{field.name}"] for field in fields(cls)})
