"""The small models and the oracle of the frontend's tests, and the cases of the rules."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "frontend")]
