"""Choices of networks drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")

CLASSES = (10, 100, 1000)


@dataclass(frozen=True, eq=False)
class Draws:
    """Choices of one network."""

    rng: np.random.Generator

    def one(self, choices: Sequence[T]) -> T:
        """One of these, each as likely."""
        return choices[int(self.rng.integers(len(choices)))]

    def upto(self, least: int, most: int) -> int:
        """A whole number from `least` to `most`."""
        return int(self.rng.integers(least, most + 1))

    def chance(self, share: float) -> bool:
        """True in this share of draws."""
        return bool(self.rng.random() < share)
