"""The data that everything else passes around: networks, chips, schemes, plans."""

from lfopt.ir.box import Box, Span, box_elements, box_shape, cut, slices, whole, within
from lfopt.ir.commands import CommandStream, StoredMap
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
from lfopt.ir.hardware import Energy, Hardware, round_up
from lfopt.ir.plan import SCHEMA, DramTensor, FusionScheme, ModelReference, Plan, PlannedGroup, Scheme, SearchRecord, Totals, Verdict, parameters_of
from lfopt.ir.quantization import Quantization
from lfopt.ir.report import Cycles, EnergyUse, GroupReport, Report, Role, TensorMove, TensorTraffic, Timing
from lfopt.ir.schedule import Compute, Loop, Node, Place, Step, Transfer, dram_bytes, fold, step_count, unfold
from lfopt.ir.tensor import Tensor, row_axis, row_count

__all__ = [
    "SCHEMA",
    "Attribute",
    "Box",
    "CannotWrite",
    "CommandStream",
    "Compute",
    "Cost",
    "Cycles",
    "DoesNotFit",
    "DramBytes",
    "DramTensor",
    "Energy",
    "EnergyUse",
    "FusionScheme",
    "Graph",
    "GroupReport",
    "Hardware",
    "InvalidConfig",
    "InvalidGraph",
    "InvalidModel",
    "InvalidPlan",
    "LfoptError",
    "Loop",
    "MissingValues",
    "ModelReference",
    "Node",
    "Operator",
    "Place",
    "Plan",
    "PlannedGroup",
    "Quantization",
    "Report",
    "RingNeed",
    "Role",
    "Scheme",
    "SearchRecord",
    "Span",
    "Step",
    "StoredMap",
    "Tensor",
    "TensorMove",
    "TensorTraffic",
    "Timing",
    "Totals",
    "Transfer",
    "UnsupportedModel",
    "Verdict",
    "box_elements",
    "box_shape",
    "cut",
    "dram_bytes",
    "fold",
    "parameters_of",
    "round_up",
    "row_axis",
    "row_count",
    "slices",
    "step_count",
    "unfold",
    "whole",
    "within",
]
