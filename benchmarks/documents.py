"""Pages and lines of printed text, drawn with Matplotlib: images that document networks are made for.

The words are those of our documentation.

Every page has columns of paragraphs in one of Matplotlib's typefaces, a headline, and mostly a photograph or
a ruled table; paper and ink vary.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cbook import get_sample_data
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle

DOCS = Path(__file__).resolve().parents[1] / "docs"
FACES = ("DejaVu Sans", "DejaVu Serif", "DejaVu Sans Mono", "STIXGeneral")
DPI = 100


class Printer:
    """Draws pages and lines, each from the next random numbers."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        text = " ".join(path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md")))
        self.words = re.findall(r"[A-Za-z][A-Za-z-]*[,.]?|[0-9]+", text)
        with get_sample_data("grace_hopper.jpg") as file:
            self.photograph = imread(file, format="jpg")

    def page(self, height: int, width: int) -> np.ndarray:
        """[height, width, 3] between 0 and 1."""
        figure, canvas = self._paper(height, width)
        rng, face, size = (
            self.rng,
            str(self.rng.choice(FACES)),
            float(self.rng.uniform(5, 11) * max(width, 320) / 640),
        )
        figure.text(0.06, 0.94, self._phrase(4), family=face, size=size * 1.8, weight="bold", va="top")
        columns = int(rng.integers(1, 3))
        per_line = int(width / columns / size)
        for column in range(columns):
            left, top = 0.06 + column * 0.9 / columns, 0.85
            while top > 0.12:
                kind = rng.choice(["text", "text", "text", "photograph", "table"])
                tall = min(float(rng.uniform(0.12, 0.3)), top - 0.05)
                if kind == "text":
                    lines = max(int(tall * height / (size * DPI / 72 * 1.5)), 1)
                    figure.text(
                        left,
                        top,
                        "\n".join(self._line(per_line) for _ in range(lines)),
                        family=face,
                        size=size,
                        va="top",
                        linespacing=1.4,
                    )
                elif kind == "photograph":
                    part = figure.add_axes((left, top - tall, 0.8 / columns, tall))
                    part.imshow(self.photograph, aspect="auto")
                    part.axis("off")
                else:
                    self._table(figure, (left, top - tall, 0.8 / columns, tall), face, size)
                top -= tall + 0.04
        return _pixels(canvas)

    def line(self, height: int, width: int) -> np.ndarray:
        """[height, width, 3] between 0 and 1: one line of text over most of the width."""
        figure, canvas = self._paper(height, width)
        size = float(self.rng.uniform(0.4, 0.6)) * height * 72 / DPI
        text = self._line(int(width / (size * 0.85)))
        figure.text(
            0.02,
            0.5,
            text,
            family=str(self.rng.choice(FACES)),
            size=size,
            va="center",
            weight=str(self.rng.choice(["normal", "bold"])),
        )
        return _pixels(canvas)

    def _paper(self, height: int, width: int) -> tuple[Figure, FigureCanvasAgg]:
        paper = 1 - self.rng.uniform(0, 0.25) * self.rng.uniform(0.3, 1, 3)
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=tuple(paper))
        return figure, FigureCanvasAgg(figure)

    def _table(self, figure: Figure, box: tuple[float, float, float, float], face: str, size: float) -> None:
        left, low, width, tall = box
        rows, columns = int(self.rng.integers(2, 6)), int(self.rng.integers(2, 5))
        for i in range(rows):
            for k in range(columns):
                corner = left + k * width / columns, low + i * tall / rows
                figure.add_artist(
                    Rectangle(
                        corner, width / columns, tall / rows, fill=False, lw=0.7, transform=figure.transFigure
                    )
                )
                figure.text(corner[0] + 0.01, corner[1] + 0.01, self._phrase(1), family=face, size=size)

    def _phrase(self, count: int) -> str:
        at = int(self.rng.integers(len(self.words) - count))
        return " ".join(self.words[at : at + count])

    def _line(self, characters: int) -> str:
        return self._phrase(max(characters // 3, 2))[: max(characters, 8)]


def _pixels(canvas: FigureCanvasAgg) -> np.ndarray:
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(np.float32) / 255
