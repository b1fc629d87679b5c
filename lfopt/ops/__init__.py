"""What operators mean: one table row each, row dependences, reference values, and a graph as a dataflow."""

from lfopt.ops.call import Call
from lfopt.ops.dataflow import Dataflow, MapRead, Weight, bits, keeps_rows, same_axes
from lfopt.ops.rows import RowReads
from lfopt.ops.table import ATTENTION, OPAQUE, TABLE, Mapping, OpSpec, Tiling, row_of, spec
from lfopt.ops.traits import Family

__all__ = [
    "ATTENTION", "OPAQUE", "TABLE",
    "Call", "Dataflow", "Family", "MapRead", "Mapping", "OpSpec", "RowReads", "Tiling", "Weight",
    "bits", "keeps_rows", "row_of", "same_axes", "spec",
]  # fmt: skip
