"""Options of commands, configuration files and the Python API: each is declared once, here.

A declaration is an annotation: its type says which values are accepted, its help what they mean, with the
unit. `--help`, the schema of a configuration, and the tables of the documentation show that help. Where the
command line reads another type (`on` for True, `256KiB` for bytes), the help alone is declared, as BUFFER is.

Defaults stand beside the declarations. One that a lower floor needs is declared there, and comes from there.
Fields of a configuration have these defaults, and everything else has those of the fields: `Config.scheme`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from cyclopts import Parameter
from pydantic import BeforeValidator

from codegen.elements import ElementName
from codegen.target import TargetName
from lfopt.ir import TrafficName
from lfopt.ir.hardware import ASSUMED
from lfopt.planning.defaults import BAND_ROWS, EPILOGUE, MAX_RECOMPUTE, SCHEME, TRAFFIC
from lfopt.planning.modes import SCHEMES
from lfopt.rewrite import DEFAULT as RULES
from lfopt.rewrite import RuleSet
from search.methods import METHODS
from search.objectives import ObjectiveName
from search.options import SearchOptions

Proposal = Literal["none", "mapping"]
GuidanceName = Literal["none", "random", "analytic", "gnne", "pg", "rg"]
ExplainerName = Literal["analytic", "rg", "pg", "gnne", "random"]
Switch = Literal["on", "off"]  # true or false in a configuration

if TYPE_CHECKING:
    Method = Scheme = str
else:  # what is checked and offered is the table
    Method = Literal[tuple(METHODS)]
    Scheme = Literal[tuple(SCHEMES)]


def switched(value: bool) -> Switch:
    """A truth value as the command line has it."""
    if value:
        return "on"
    return "off"


def option(text: str, default: object = None, **spelling: Any) -> Parameter:
    """The help of an option; `spelling`: its names and forms, as `cyclopts.Parameter` takes them.

    `default`: shown where that of the command is None, which a configuration or the default replaces.
    """
    if default is None:
        return Parameter(help=text, **spelling)
    word = switched(default) if isinstance(default, bool) else str(default)
    return Parameter(help=text, show_default=lambda own: word if own is None else str(own), **spelling)


def help_of(hint: object) -> str | None:
    """The help of an annotation, or of one that is in it: `SchemeOption | None`; None where it has none.

    >>> help_of(ElementBytesOption | None) == help_of(ElementBytesOption) != help_of(int)
    True
    """
    inner = get_args(hint)
    if get_origin(hint) is Annotated:
        for said in inner[1:]:
            if isinstance(said, Parameter) and said.help:
                return said.help
    return next((text for part in inner if (text := help_of(part))), None)


def _rows_or_max(value: object) -> object:
    if value is not None and value != "max" and type(value) is not int:
        raise ValueError("a whole number, or max")
    return value


# -- what a command works on ---------------------------------------------------------------------------------

ModelOption = Annotated[str, option("ONNX file, zoo:NAME, or a folder that `lfopt search` has written.")]
ModelWithWeightsOption = Annotated[
    str, option("ONNX file with weights, zoo:NAME, or a folder that `lfopt search` has written.")
]
PlanOption = Annotated[Path, option("plan.json, or the folder it is in.")]
GroupOption = Annotated[int, option("A group of the plan, by its number.")]
INPUT_SHAPES = option(
    "Shapes of inputs by name, and sizes of named dimensions, where the file leaves them open or others are "
    "wanted."
)
InputShapesOption = Annotated[
    tuple[str, ...],
    option(
        "Shapes of inputs, as name=1,3,224,224, and sizes of named dimensions, as batch=1 height=320.",
        name="--input-shape",
        consume_multiple=False,
        negative="",
    ),
]

WeightsOption = Annotated[
    bool, option("Whether zoo:NAME gets values, which takes time; a plan needs none, what runs does.")
]

# -- the chip ------------------------------------------------------------------------------------------------

DEFAULT_BUFFER = "256KiB"
HARDWARE = option("Hardware description (YAML): a file, or an installed one by name.")
BUFFER = option(
    "On-chip buffer, such as 256KiB, or unlimited; below 4,096 with a unit. It wins over the hardware "
    f"description. Where neither says it, nor a plan: {DEFAULT_BUFFER}."
)
HardwareOption = Annotated[str, HARDWARE]
BufferOption = Annotated[str, BUFFER]
ElementBytesOption = Annotated[
    int,
    option(
        f"Bytes per element of a feature map. Where nothing says it: {ASSUMED:d}, or 1 of a quantised "
        "network."
    ),
]
CPU_HELP = option("Hardware description (YAML) of a CPU, such as `lfopt hw detect` writes.")
CpuOption = Annotated[str, CPU_HELP]
CacheOption = Annotated[
    str,
    option(
        "Cache that a fusion group may fill, such as 512KiB. It wins over the hardware description; 1MiB "
        "where neither says it."
    ),
]

# -- which plans there are, and how they are counted ---------------------------------------------------------

SchemeOption = Annotated[
    Scheme,
    option(
        f"How a group runs. {'; '.join(f'{name}: {row.summary}' for name, row in SCHEMES.items())}.", SCHEME
    ),
]
TrafficOption = Annotated[
    TrafficName,
    option(
        "How operators that do not fit the buffer are counted: as tiled, every tensor once, or as the paper "
        "does.",
        TRAFFIC,
    ),
]
JOINING = option("Whether elementwise operators may always join their producer.", EPILOGUE)
JOINING_SWITCH: Switch = switched(EPILOGUE)
MaxRecomputeOption = Annotated[
    float,
    option(
        "Limit on recomputation: multiply-accumulates executed / multiply-accumulates of the network. At 1, "
        "nothing is computed again. For scheme all.",
        MAX_RECOMPUTE,
    ),
]
BANDS = option(
    "Output rows that a group in mode lbdf makes at a time, as many of them as fit; max: as many as fit. If "
    f"not given: {BAND_ROWS}, or as the objective wants it (docs/models.md)."
)
BandRowsOption = Annotated[int | Literal["max"] | None, BeforeValidator(_rows_or_max), BANDS]
RulesOption = Annotated[
    RuleSet,
    option(
        "Graph simplification: default folds BatchNormalization, all also rewrites (algebra, parts of GELU, "
        "Softmax and the like, noise of exporters), none does nothing.",
        RULES,
    ),
]

# -- how to search -------------------------------------------------------------------------------------------

METHOD: Method = "exact"
GUIDANCE: GuidanceName = "none"
PROPOSE: Proposal = "none"
MethodOption = Annotated[
    Method,
    option(
        f"How to search. {'; '.join(f'{name}: {method.summary}' for name, method in METHODS.items())}.",
        METHOD,
    ),
]
SeedOption = Annotated[
    int,
    option("Seed of everything that is drawn at random; the same seed draws the same.", SearchOptions.seed),
]
BudgetOption = Annotated[int, option("Plans that a method that samples may evaluate.", SearchOptions.budget)]
JobSecondsOption = Annotated[
    float,
    option(
        "Seconds for the whole job: loading, the search, whatever follows it, the steps of the plan and "
        "its files. Several methods share those of the search. The better plan of every operator alone and"
        " of fused epilogues comes first, with its steps; it is written where those of a better plan are "
        "not made in time. When a stage's time is over, the best so far is taken. Python's own start comes"
        " on top, and a job whose limit is over before it has that plan finishes it. If not given: until "
        "it is done; a balanced plan is searched for in 28 seconds, in more where the first plan of a "
        "network takes more than one, and its steps take what they take."
    ),
]
GuidanceOption = Annotated[
    GuidanceName,
    option(
        "Whose explanations say where a method that samples splits groups that do not fit: those of a "
        "network (rg, pg, gnne), bytes from the row schedule (analytic), links at random (random), or "
        "none.",
        GUIDANCE,
    ),
]
ProposeOption = Annotated[
    Proposal,
    option(
        "Where methods that edit plans (nsga2, local) start. mapping: from the groups that rules of mapping "
        "types make; none: at random.",
        PROPOSE,
    ),
]
PROFILE = option(
    "Whether dnnfusion decides doubtful pairs by C that it compiles and times on this machine, once for all "
    "networks, or by DRAM bytes.",
    default=False,
)
ObjectiveOption = Annotated[
    ObjectiveName,
    option(
        "What the plan is to have little of: bytes of DRAM, cycles, energy, edp (energy x delay), or "
        "balanced: the fewest bytes among plans no slower than today's compilers', and within 3 % of those "
        "bytes the fewest cycles. Cycles and energy are the model's. By exact search. If not given: "
        "balanced; bytes by other methods or compared with them, in other traffic, below caps on bytes or "
        "energy, with a surrogate, or with a second level of memory."
    ),
]
SURROGATE = option(
    "For objective cycles: whether an estimate says which groups are worth the model's time. The search ends "
    "much sooner; that no plan is better is then not proven.",
    default=False,
)
SLACK = option(
    "With objective bytes or balanced: DRAM bytes above the fewest that a faster plan may move, as a share "
    "of them (`0.1%` or `0.001`). If not given: `byte_slack` of the chip, else 0; with balanced, 3 %."
)
MAX_BYTES = option("DRAM bytes that the plan may move, such as `4.5MB`, whatever the objective.")
MaxCyclesOption = Annotated[int, option("Cycles that the plan may take.")]
MaxEnergyOption = Annotated[float, option("Energy that the plan may spend, in uJ.")]

# -- fronts --------------------------------------------------------------------------------------------------

ANY_MODE: Scheme = "auto"  # default scheme of fronts, and of partitions that were made elsewhere
FRONT_BUFFERS = "64KiB:1MiB"
FRONT_ARRAYS = "8x8,16x16,32x32"
OVER = option(
    "What is varied: buffer, mac_array, objective, with commas between. If not given: buffers and "
    "objectives, and MAC arrays if some are given."
)
BUFFERS = option("A range that doubles, or a list such as 96KiB,128KiB,256KiB.", FRONT_BUFFERS)
MAC_ARRAYS = option(
    f"MAC arrays, rows x columns: {FRONT_ARRAYS} if they are varied. Everything else stays as the hardware "
    "description says."
)
OBJECTIVES = option(
    "Whose best plan is wanted on every chip: bytes, cycles, energy, edp. If not given: of all of them."
)
MINIMISE = option(
    "Costs in which a plan must be beaten to be left out: bytes, cycles, energy, buffer, area. If not given: "
    "all that is varied or searched for."
)
CornersOption = Annotated[int, option("Exact searches on each chip, at most; at least 3.")]
ChipBudgetOption = Annotated[int, option("Plans that NSGA-II may look at on each chip; 0: none.")]
FrontSecondsOption = Annotated[
    float, option("Seconds for everything, of which each chip gets an equal share of what is left.")
]

# -- what plans are for --------------------------------------------------------------------------------------

REPAIR_SECONDS = 5.0
SWEEP_SECONDS = 4.0
PICTURE_SECONDS = 3.0
ProveOption = Annotated[bool, option("Verify the lower bound too, by the exact search.", negative="")]
ProofSecondsOption = Annotated[float, option("Seconds that the exact search may take.")]
NODES = option(
    "The group: names of operators and ranges A..B (all operators on paths from A to B), with commas "
    "between. Whatever lies between is added."
)
EXPLAINER = option(
    "Whose scores of links are shown, one or more, of groups that fit too. If not given, of groups that do "
    "not fit: analytic, and rg and pg where there are weights for the scheme. gnne needs torch and "
    "torch_geometric.",
    consume_multiple=True,
    negative="",
)
ExplainersOption = Annotated[tuple[ExplainerName, ...], EXPLAINER]
RepairSecondsOption = Annotated[
    float,
    option("Seconds for the exact search for the best cut; of objective cycles, for looking at links."),
]
SweepSecondsOption = Annotated[
    float,
    option("Seconds to spend on other buffer sizes; 0 leaves the staircase at the plan's own."),
]
PictureSecondsOption = Annotated[
    float, option("Seconds to spend on pictures of what does not fit; 0 draws none.")
]
FillOption = Annotated[bool, option("Draw weights at random where the model has only their shapes.")]
CompareOption = Annotated[
    bool,
    option(
        "Compare the outputs with the reference of the whole network, in float64, and, where it is "
        "installed, with what ONNX Runtime makes of the file. What they may be off follows from what "
        "rounding does to this network."
    ),
]
TraceOption = Annotated[
    Path | None,
    option("Write when what runs, and how full the buffer is, as a trace for ui.perfetto.dev."),
]
TraceEventsOption = Annotated[
    int,
    option("Events of commands and of the buffer in a trace at most; of groups beyond, it has a bar each."),
]

# -- compiled code -------------------------------------------------------------------------------------------

TARGET_HELP = option("Instructions that the code may use; native: those of this machine.")
TargetOption = Annotated[TargetName, TARGET_HELP]
ThreadsOption = Annotated[int, option("Threads of the compiled code.")]
ElementOption = Annotated[
    ElementName,
    option(
        "Type that maps and weights of float32 are stored in; sums, inputs and outputs are float32. bf16: "
        "see docs/cpu-code.md."
    ),
]
TuneOption = Annotated[
    bool,
    option(
        "Measure how many rows at a time each group had better make. Times are kept beside what was "
        "compiled, for all models."
    ),
]
VerifyOption = Annotated[
    bool,
    option(
        "Check every byte of a cached program and its weights before it runs, instead of samples of the "
        "weights. A damaged program is compiled again."
    ),
]
EmbedOption = Annotated[bool, option("Link the weights in, instead of writing a file that is mapped.")]
CountOption = Annotated[
    bool,
    option(
        "Code that follows every step of the plan through a buffer of its size, and counts the bytes that it "
        "moves: a proof, and slow."
    ),
]
WinogradOption = Annotated[
    Literal[0, 2, 4],
    option(
        "Largest tiles of Winograd's algorithm, for convolutions 3 x 3 that make whole maps; 0: every "
        "convolution is direct."
    ),
]
PrefixOption = Annotated[
    str,
    option(
        "What the names of all symbols and of the library begin with, in place of the model's name: two "
        "networks of one name link into one program."
    ),
]

# -- many jobs -----------------------------------------------------------------------------------------------

JOBS = 2
JobsOption = Annotated[int, option("Processes.")]
