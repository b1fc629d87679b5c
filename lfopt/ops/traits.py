"""What operators are told apart by: the columns of the operator table that are not functions."""

from __future__ import annotations

from enum import Enum, IntEnum
from math import inf
from typing import NamedTuple


class Family(Enum):
    """What an operator does, as far as planning, timing and code generation treat operators alike."""

    # every element from the elements at the same place; may end an epilogue group
    ELEMENTWISE = "elementwise"
    CONVOLUTION = "convolution"  # sums products over a window that slides, and over input channels
    PRODUCT = "product"  # of matrices
    POOL = "pool"  # folds a window that slides
    REDUCTION = "reduction"  # folds whole axes
    ARG_REDUCTION = "arg reduction"  # where along an axis the largest or smallest element is
    NORMALISATION = "normalisation"  # scales every element by what it finds of many
    MOVE = "move"  # lays elements elsewhere, at places that attributes and constants say
    INDEX = "index"  # lays elements elsewhere, at places that are computed
    INTERPOLATION = "interpolation"  # elements from their neighbours, on another grid
    VIEW = "view"  # renames the same bytes; moves nothing in any plan
    OTHER = "other"


class Mapping(Enum):
    """Mapping type between input and output elements.

    Source: DNNFusion (PLDI'21, arXiv 2108.13342), table 2.
    """

    ONE_TO_ONE = "one-to-one"
    ONE_TO_MANY = "one-to-many"
    MANY_TO_MANY = "many-to-many"
    REORGANIZE = "reorganize"
    SHUFFLE = "shuffle"


class Tiling(Enum):
    """How a single operator that does not fit the buffer is cut up (see `lfopt.planning.tiling.tiles`)."""

    SPLIT = "split"  # by channel or by element: every byte moves once, whatever the buffer
    FOLD = "fold"  # as split; rows that it folds may also come in bands, with partial results kept in between
    # operand 1 (weights, or the second matrix) meets operand 0 in blocks; one of them is re-read
    CONTRACT = "contract"
    ATTEND = "attend"  # heads, bands of queries and blocks of keys (see `lfopt.planning.attention.tiling`)
    WHOLE = "whole"  # nothing is known: counted once, never executed piecewise


class Pattern(IntEnum):
    """How elements of a result depend on elements of operands, as TVM's fusion rules have it, simplest first.

    Source: the pass FuseOps of TVM (Chen et al., OSDI 2018, section 3, has its idea), and what Relax of TVM
    0.27 makes of small networks. It reads the kind of an operator off its loops; those of ONNX operators are
    as its importer translates them; one that it takes apart is opaque.
    """

    ELEMENTWISE = 0  # one on one
    BROADCAST = 1  # one on one, axes spread
    INJECTIVE = 2  # one on one, anywhere
    REDUCTION = 3  # one on many
    COMPLEX = 4  # as a convolution; elementwise operators may follow it in one kernel
    OPAQUE = 8


class Arithmetic(Enum):
    """How an operator on quantised maps is computed (see `lfopt.ops.integer`)."""

    SUMS = "sums"
    TABLE = "table"
    TERMS = "terms"
    PRODUCT = "product"
    SLOPES = "slopes"
    MEAN = "mean"
    EXTREME = "extreme"
    CHOICE = "choice"
    MOVE = "move"
    FLOAT = "float"


class Range(NamedTuple):
    """What is known of every element of a result, whatever the operand: bounds, inclusive."""

    low: float = -inf
    high: float = inf
    nonzero: bool = False  # no element is 0
    zero_at_zero: bool = False  # an element is 0 only where the operand's is
