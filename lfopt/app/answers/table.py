"""What commands say as JSON (`--json`): one type per command, from which `lfopt schema COMMAND` comes."""

from __future__ import annotations

from lfopt.app.answers.chips import ChipCheckAnswer, ChipsAnswer, DetectAnswer, FieldsAnswer, ShowAnswer
from lfopt.app.answers.fits import FitAnswer
from lfopt.app.answers.fronts import BatchAnswer, ParetoAnswer, SweepAnswer
from lfopt.app.answers.networks import (
    DatasetAnswer,
    ExplainAnswer,
    ExportAnswer,
    InspectAnswer,
    QuantizeAnswer,
    TrainAnswer,
    ZooAnswer,
)
from lfopt.app.answers.plans import CheckAnswer, CostAnswer, DiffAnswer, ReportAnswer, SearchAnswer
from lfopt.app.answers.programs import CacheAnswer, CodegenAnswer, ExecuteAnswer, RtlAnswer, RunAnswer
from lfopt.ir import Report

ANSWERS: dict[str, type] = {  # by command
    "search": SearchAnswer,
    "simulate": Report,
    "execute": ExecuteAnswer,
    "run": RunAnswer,
    "codegen": CodegenAnswer,
    "check": CheckAnswer,
    "cost": CostAnswer,
    "diff": DiffAnswer,
    "report": ReportAnswer,
    "explain": ExplainAnswer,
    "inspect": InspectAnswer,
    "sweep": SweepAnswer,
    "quantize": QuantizeAnswer,
    "pareto": ParetoAnswer,
    "batch": BatchAnswer,
    "dataset": DatasetAnswer,
    "train": TrainAnswer,
    "zoo list": ZooAnswer,
    "zoo export": ExportAnswer,
    "cache list": CacheAnswer,
    "cache prune": CacheAnswer,
    "cache clear": CacheAnswer,
    "hw list": ChipsAnswer,
    "hw show": ShowAnswer,
    "hw fields": FieldsAnswer,
    "hw check": ChipCheckAnswer,
    "hw detect": DetectAnswer,
    "hw fit": FitAnswer,
    "rtl run": RtlAnswer,
}


def name_of(command: str) -> str:
    """What the schema of a command's answer is called."""
    return f"lfopt.{command.replace(' ', '.')}/1"
