"""The data that everything else passes around: networks, chips, schemes, plans."""

from lfopt.ir.box import Box, Span, box_elements, box_shape, cut, slices, whole, within
from lfopt.ir.cost import Cost, DoesNotFit, DramBytes, RingNeed
from lfopt.ir.errors import (
    CannotWrite,
    InvalidConfig,
    InvalidGraph,
    InvalidModel,
    InvalidPlan,
    LfoptError,
    MissingValues,
    UnsupportedModel,
)
from lfopt.ir.graph import Attribute, Graph, Operator
from lfopt.ir.hardware import Hardware, round_up
from lfopt.ir.plan import SCHEMA, FusionScheme, ModelReference, Plan, PlannedGroup, SearchRecord, Totals, Verdict
from lfopt.ir.quantization import Quantization
from lfopt.ir.tensor import Tensor, row_axis, row_count

__all__ = [
    "SCHEMA",
    "Attribute",
    "Box",
    "CannotWrite",
    "Cost",
    "DoesNotFit",
    "DramBytes",
    "FusionScheme",
    "Graph",
    "Hardware",
    "InvalidConfig",
    "InvalidGraph",
    "InvalidModel",
    "InvalidPlan",
    "LfoptError",
    "MissingValues",
    "ModelReference",
    "Operator",
    "Plan",
    "PlannedGroup",
    "Quantization",
    "RingNeed",
    "SearchRecord",
    "Span",
    "Tensor",
    "Totals",
    "UnsupportedModel",
    "Verdict",
    "box_elements",
    "box_shape",
    "cut",
    "round_up",
    "row_axis",
    "row_count",
    "slices",
    "whole",
    "within",
]
