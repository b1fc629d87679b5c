# What `import lfopt` offers, for type checkers; `__init__.py` imports each name when it is asked for.
# A test compares the two.

from codegen.build import CannotBuild as CannotBuild
from codegen.runtime import (
    CannotRun as CannotRun,
)
from codegen.runtime import (
    Compiled as Compiled,
)
from codegen.source import (
    CSource as CSource,
)
from codegen.source import (
    Unsupported as Unsupported,
)
from lfopt import zoo as zoo
from lfopt.app.api import (
    check as check,
)
from lfopt.app.api import (
    emit_c as emit_c,
)
from lfopt.app.api import (
    encode as encode,
)
from lfopt.app.api import (
    execute as execute,
)
from lfopt.app.api import (
    explain as explain,
)
from lfopt.app.api import (
    legal as legal,
)
from lfopt.app.api import (
    load as load,
)
from lfopt.app.api import (
    load_plan as load_plan,
)
from lfopt.app.api import (
    pareto as pareto,
)
from lfopt.app.api import (
    plan as plan,
)
from lfopt.app.api import (
    report as report,
)
from lfopt.app.api import (
    search as search,
)
from lfopt.app.api import (
    simplify as simplify,
)
from lfopt.app.api import (
    simulate as simulate,
)
from lfopt.app.by_shape import CompiledByShape as CompiledByShape
from lfopt.app.compiled import compile_model as compile  # noqa: A004
from lfopt.app.front import Front as Front
from lfopt.app.front_data import (
    Advice as Advice,
)
from lfopt.app.front_data import (
    Point as Point,
)
from lfopt.app.pytorch import EagerFallback as EagerFallback
from lfopt.app.results import (
    Explained as Explained,
)
from lfopt.app.results import (
    Planned as Planned,
)
from lfopt.app.session import InferenceSession as InferenceSession
from lfopt.app.verify import Verified as Verified
from lfopt.ir import (
    ACCESS as ACCESS,
)
from lfopt.ir import (
    FREE as FREE,
)
from lfopt.ir import (
    MOST_LINES as MOST_LINES,
)
from lfopt.ir import (
    MOST_ROWS as MOST_ROWS,
)
from lfopt.ir import (
    MOST_STEPS as MOST_STEPS,
)
from lfopt.ir import (
    NEVER as NEVER,
)
from lfopt.ir import (
    NO_L2 as NO_L2,
)
from lfopt.ir import (
    SCHEMA as SCHEMA,
)
from lfopt.ir import (
    UNLIMITED as UNLIMITED,
)
from lfopt.ir import (
    UNWRITTEN as UNWRITTEN,
)
from lfopt.ir import (
    Again as Again,
)
from lfopt.ir import (
    Attribute as Attribute,
)
from lfopt.ir import (
    Box as Box,
)
from lfopt.ir import (
    BufferUse as BufferUse,
)
from lfopt.ir import (
    CannotWrite as CannotWrite,
)
from lfopt.ir import (
    Carry as Carry,
)
from lfopt.ir import (
    CommandStream as CommandStream,
)
from lfopt.ir import (
    Compute as Compute,
)
from lfopt.ir import (
    Constraints as Constraints,
)
from lfopt.ir import (
    Copy as Copy,
)
from lfopt.ir import (
    Cost as Cost,
)
from lfopt.ir import (
    Cycles as Cycles,
)
from lfopt.ir import (
    DoesNotFit as DoesNotFit,
)
from lfopt.ir import (
    DramAccess as DramAccess,
)
from lfopt.ir import (
    DramBytes as DramBytes,
)
from lfopt.ir import (
    DramTensor as DramTensor,
)
from lfopt.ir import (
    Energy as Energy,
)
from lfopt.ir import (
    EnergyUse as EnergyUse,
)
from lfopt.ir import (
    FalsePlan as FalsePlan,
)
from lfopt.ir import (
    Figures as Figures,
)
from lfopt.ir import (
    FileOperator as FileOperator,
)
from lfopt.ir import (
    FusionScheme as FusionScheme,
)
from lfopt.ir import (
    Graph as Graph,
)
from lfopt.ir import (
    GroupReport as GroupReport,
)
from lfopt.ir import (
    Hardware as Hardware,
)
from lfopt.ir import (
    InvalidConfig as InvalidConfig,
)
from lfopt.ir import (
    InvalidGraph as InvalidGraph,
)
from lfopt.ir import (
    InvalidModel as InvalidModel,
)
from lfopt.ir import (
    InvalidPlan as InvalidPlan,
)
from lfopt.ir import (
    L2Bytes as L2Bytes,
)
from lfopt.ir import (
    L2Choice as L2Choice,
)
from lfopt.ir import (
    LfoptError as LfoptError,
)
from lfopt.ir import (
    Loop as Loop,
)
from lfopt.ir import (
    MapClaim as MapClaim,
)
from lfopt.ir import (
    Memory as Memory,
)
from lfopt.ir import (
    MissingValues as MissingValues,
)
from lfopt.ir import (
    ModelReference as ModelReference,
)
from lfopt.ir import (
    Node as Node,
)
from lfopt.ir import (
    OpenShape as OpenShape,
)
from lfopt.ir import (
    Operator as Operator,
)
from lfopt.ir import (
    Origin as Origin,
)
from lfopt.ir import (
    Place as Place,
)
from lfopt.ir import (
    Plan as Plan,
)
from lfopt.ir import (
    PlannedGroup as PlannedGroup,
)
from lfopt.ir import (
    Purpose as Purpose,
)
from lfopt.ir import (
    Quantization as Quantization,
)
from lfopt.ir import (
    Report as Report,
)
from lfopt.ir import (
    Role as Role,
)
from lfopt.ir import (
    Scheme as Scheme,
)
from lfopt.ir import (
    SearchRecord as SearchRecord,
)
from lfopt.ir import (
    Span as Span,
)
from lfopt.ir import (
    Step as Step,
)
from lfopt.ir import (
    Store as Store,
)
from lfopt.ir import (
    StoredMap as StoredMap,
)
from lfopt.ir import (
    Tensor as Tensor,
)
from lfopt.ir import (
    TensorMove as TensorMove,
)
from lfopt.ir import (
    TensorTraffic as TensorTraffic,
)
from lfopt.ir import (
    Timing as Timing,
)
from lfopt.ir import (
    Totals as Totals,
)
from lfopt.ir import (
    TrafficName as TrafficName,
)
from lfopt.ir import (
    Transfer as Transfer,
)
from lfopt.ir import (
    UnsupportedModel as UnsupportedModel,
)
from lfopt.ir import (
    Verdict as Verdict,
)
from lfopt.ir import (
    box_elements as box_elements,
)
from lfopt.ir import (
    box_shape as box_shape,
)
from lfopt.ir import (
    computations as computations,
)
from lfopt.ir import (
    counted_leaves as counted_leaves,
)
from lfopt.ir import (
    cut as cut,
)
from lfopt.ir import (
    dram_bytes as dram_bytes,
)
from lfopt.ir import (
    fold as fold,
)
from lfopt.ir import (
    in_line as in_line,
)
from lfopt.ir import (
    l2_bytes as l2_bytes,
)
from lfopt.ir import (
    leaves as leaves,
)
from lfopt.ir import (
    line_count as line_count,
)
from lfopt.ir import (
    parameter_runs as parameter_runs,
)
from lfopt.ir import (
    parameters_of as parameters_of,
)
from lfopt.ir import (
    round_up as round_up,
)
from lfopt.ir import (
    row_axis as row_axis,
)
from lfopt.ir import (
    row_count as row_count,
)
from lfopt.ir import (
    slices as slices,
)
from lfopt.ir import (
    step_count as step_count,
)
from lfopt.ir import (
    store_ends as store_ends,
)
from lfopt.ir import (
    too_tall as too_tall,
)
from lfopt.ir import (
    unfold as unfold,
)
from lfopt.ir import (
    unfused_steps as unfused_steps,
)
from lfopt.ir import (
    unschedulable as unschedulable,
)
from lfopt.ir import (
    whole as whole,
)
from lfopt.ir import (
    within as within,
)
from lfopt.planning import Limit as Limit
from search.result import Result as Result
from simulator.interpreter.execute import Execution as Execution

__version__: str
__all__ = [
    "Advice",
    "CSource",
    "CannotBuild",
    "CannotRun",
    "CannotWrite",
    "CommandStream",
    "Compiled",
    "CompiledByShape",
    "Cost",
    "DoesNotFit",
    "DramBytes",
    "EagerFallback",
    "Energy",
    "Execution",
    "Explained",
    "FalsePlan",
    "Front",
    "FusionScheme",
    "Graph",
    "Hardware",
    "InferenceSession",
    "InvalidConfig",
    "InvalidGraph",
    "InvalidModel",
    "InvalidPlan",
    "LfoptError",
    "Limit",
    "MissingValues",
    "OpenShape",
    "Operator",
    "Plan",
    "Planned",
    "PlannedGroup",
    "Point",
    "Report",
    "Result",
    "SearchRecord",
    "Tensor",
    "Totals",
    "Unsupported",
    "UnsupportedModel",
    "Verdict",
    "Verified",
    "__version__",
    "check",
    "compile",
    "emit_c",
    "encode",
    "execute",
    "explain",
    "legal",
    "load",
    "load_plan",
    "pareto",
    "plan",
    "report",
    "search",
    "simplify",
    "simulate",
    "zoo",
]
