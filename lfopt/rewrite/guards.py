"""Whether what a rule needs is known of a match, and if not, why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

from lfopt.ops import Tiling, spec
from lfopt.rewrite.facts import Facts
from lfopt.rewrite.match import LARGE
from lfopt.rewrite.mutable_graph import MutableGraph
from lfopt.rewrite.rule import Match, OperatorSettings
from lfopt.rewrite.terms import MIRRORED, Condition

Reason = str | None  # None: it holds
# predicates that say what a letter stands for: where they fail there is no match to speak of
PATTERNS = frozenset({"constant", "scalar"})


def refusal(conditions: Sequence[Condition], match: Match, facts: Facts) -> Reason:
    """The first condition that is not known to hold, with what is known instead; None if all hold."""
    for condition in conditions:
        if condition.subject in MIRRORED:
            reason = _bound(condition, match, facts)
        else:
            reason = PREDICATES[condition.subject](facts, match, condition.variables)
        if reason is not None:
            return reason
    return None


def is_match(conditions: Sequence[Condition], match: Match, facts: Facts) -> bool:
    """Whether letters that stand for constants meet constants."""
    return all(
        PREDICATES[c.subject](facts, match, c.variables) is None for c in conditions if c.subject in PATTERNS
    )


def _bound(condition: Condition, match: Match, facts: Facts) -> Reason:
    (variable,) = condition.variables
    tensor = match.tensors[variable]
    known = facts.of(tensor)
    if known.satisfies(condition.subject, condition.bound):
        return None
    zero = ", 0 left out" if known.nonzero else ""
    return f"{condition} is not known: {variable} is {tensor!r}, in [{known.low:g}, {known.high:g}]{zero}"


def _constant(facts: Facts, match: Match, variables: Sequence[str]) -> Reason:
    computed = [v for v in variables if match.tensors[v] not in facts.mutable.constants]
    if computed:
        return f"{computed[0]} is no constant"
    return None


def _scalar(facts: Facts, match: Match, variables: Sequence[str]) -> Reason:
    others = [v for v in variables if facts.mutable.scalar(match.tensors[v]) is None]
    if others:
        return f"{others[0]} is no constant of one element"
    return None


def _ordered(facts: Facts, match: Match, variables: Sequence[str]) -> Reason:
    low, high = (facts.mutable.scalar(match.tensors[v]) for v in variables)
    if low is not None and high is not None and low <= high:
        return None
    return f"{variables[0]} is not known to be at most {variables[1]}"


def _without_axes(facts: Facts, match: Match, variables: Sequence[str]) -> Reason:
    others = [v for v in variables if facts.mutable.tensors[match.tensors[v]].shape]
    if others:
        return f"{others[0]} has axes"
    return None


def _same(facts: Facts, match: Match, variables: Sequence[str]) -> Reason:
    shapes = [_shape(facts.mutable, match, v) for v in variables]
    if len(set(shapes)) == 1:
        return None
    return f"{' and '.join(variables)} have shapes {' and '.join(map(str, shapes))}"


def _matrix(facts: Facts, match: Match, variables: Sequence[str]) -> Reason:
    vectors = [v for v in variables if len(_shape(facts.mutable, match, v)) < 2]
    if vectors:
        return f"{vectors[0]} is no matrix"
    return None


def _row(facts: Facts, match: Match, variables: Sequence[str]) -> Reason:
    """One element per column at most: every axis but the last has extent 1."""
    tall = [v for v in variables if any(n != 1 for n in _shape(facts.mutable, match, v)[:-1])]
    if tall:
        return f"{tall[0]} differs between rows"
    return None


def _integer(facts: Facts, match: Match, variables: Sequence[str]) -> Reason:
    real = [
        v
        for v in variables
        if not facts.mutable.tensors[match.tensors[v]].dtype.startswith(("int", "uint", "bool"))
    ]
    if real:
        return f"{real[0]} may be no number"
    return None


def _modest(facts: Facts, match: Match, variables: Sequence[str]) -> Reason:
    """No constant so large that adding and taking it off again is a way to round."""
    large = [v for v in variables if abs(facts.mutable.scalar(match.tensors[v]) or 0) > LARGE]
    if large:
        return f"{large[0]} is so large that adding it rounds"
    return None


def _finite(facts: Facts, match: Match, variables: Sequence[str]) -> Reason:
    """No element is infinite.

    Arithmetic is taken not to overflow; constants that are added, as masks are, must be seen.
    """
    names = [name for v in variables for name in _unseen(facts.mutable, match.tensors[v])]
    if names:
        return f"{names[0]!r} may hold infinities"
    return None


def _unseen(mutable: MutableGraph, tensor: str) -> list[str]:
    """Where infinities could come from."""
    if tensor in mutable.constants:
        value = mutable.scalar(tensor)
        if value is not None and isfinite(value):
            return []
        return [tensor]
    operator = mutable.maker(tensor)
    if operator is None or spec(operator.kind, operator.domain).tiling is Tiling.CONTRACT:
        return []
    if operator.kind not in SEEN_THROUGH:
        return [tensor]
    if operator.kind == "Where":
        operands = operator.inputs[1:]
    elif operator.kind in MOVES:
        operands = operator.inputs[:1]
    else:
        operands = operator.inputs
    return [name for operand in operands for name in _unseen(mutable, operand)]


def _bare(facts: Facts, match: Match, labels: Sequence[str]) -> Reason:
    told = [x for x in labels if match.settings[x].inputs]
    if told:
        return f"the {match.settings[told[0]].kind} has a bias"
    return None


def _rising(facts: Facts, match: Match, labels: Sequence[str]) -> Reason:
    for x in labels:
        settings = match.settings[x]
        falling = [name for name in ("alpha", "gamma") if float(settings.attributes.get(name, 1.0)) < 0]  # type: ignore[arg-type]
        if falling:
            return f"the {settings.kind} has a negative {falling[0]}"
    return None


def _uniform(facts: Facts, match: Match, names: Sequence[str]) -> Reason:
    """`uniform(k, x)`: k does not change along the axes that x folds, and lines up with the result."""
    k, x = names
    shape = _shape(facts.mutable, match, k)
    settings = match.settings[x]
    if facts.mutable.tensors[match.tensors[k]].elements == 1 and len(shape) <= (settings.rank or 0):
        return None
    axes = _folded_axes(settings)
    if axes is None or settings.rank is None or len(shape) > settings.rank or not settings.keeps:
        return f"{k} may change along the axes that are folded"
    padded = (1,) * (settings.rank - len(shape)) + shape
    if all(padded[axis] == 1 for axis in axes):
        return None
    return f"{k} changes along the axes that are folded"


def _folded_axes(settings: OperatorSettings) -> frozenset[int] | None:
    if settings.kind in ("Softmax", "LogSoftmax") and settings.rank is not None:
        axis = settings.attributes.get("axis", -1)
        if isinstance(axis, int):
            return frozenset([axis % settings.rank])
        return None
    return settings.axes


def _single_axis(facts: Facts, match: Match, labels: Sequence[str]) -> Reason:
    settings = match.settings[labels[0]]
    if settings.axes is not None and len(settings.axes) == 1 and settings.keeps:
        return None
    return "more than one axis is folded, or it is dropped"


def _trailing(facts: Facts, match: Match, labels: Sequence[str]) -> Reason:
    """Exactly the last axes are folded, and stay with extent 1."""
    settings = match.settings[labels[0]]
    if settings.axes is None or settings.rank is None or not settings.keeps:
        return "the axes that are folded are not known, or are dropped"
    wanted = frozenset(range(settings.rank - len(settings.axes), settings.rank))
    if settings.axes == wanted:
        return None
    return f"the axes {sorted(settings.axes)} of {settings.rank} are not the last ones"


def _normalized(facts: Facts, match: Match, names: Sequence[str]) -> Reason:
    """`normalized(s, a, x)`: s has exactly the axes of a that x folds."""
    s, a, x = names
    count = len(match.settings[x].axes or ())
    wanted = _shape(facts.mutable, match, a)[-count:]
    shape = _shape(facts.mutable, match, s)
    if shape == wanted:
        return None
    return f"{s} has shape {shape}; {wanted} is wanted"


def _along(facts: Facts, match: Match, labels: Sequence[str]) -> Reason:
    """`along(x, y)`: x folds the axis that y normalizes along."""
    folds, normalizes = (match.settings[x] for x in labels)
    if folds.axes == _folded_axes(normalizes) and folds.keeps:
        return None
    return "the two work along different axes"


def _within(facts: Facts, match: Match, names: Sequence[str]) -> Reason:
    """`within(a, x)`: a Clip changes no element."""
    a, x = names
    known = facts.of(match.tensors[a])
    bounds = (*match.settings[x].inputs, "", "")[:2]
    low, high = (facts.mutable.scalar(name) if name else None for name in bounds)
    if (bounds[0] and low is None) or (bounds[1] and high is None):
        return "the bounds are not known"
    inside = (low is None or known.low >= low) and (high is None or known.high <= high)
    if inside:
        return None
    return f"{a} is {match.tensors[a]!r}, in [{known.low:g}, {known.high:g}]"


def _shape(mutable: MutableGraph, match: Match, variable: str) -> tuple[int, ...]:
    return mutable.tensors[match.tensors[variable]].shape


MOVES = frozenset({"Expand", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
SEEN_THROUGH = MOVES | {"Add", "Mul", "Sub", "Where"}

PREDICATES: dict[str, Callable[[Facts, Match, Sequence[str]], Reason]] = {
    "along": _along,
    "bare": _bare,
    "constant": _constant,
    "finite": _finite,
    "integer": _integer,
    "matrix": _matrix,
    "modest": _modest,
    "normalized": _normalized,
    "ordered": _ordered,
    "row": _row,
    "rising": _rising,
    "same": _same,
    "scalar": _scalar,
    "single_axis": _single_axis,
    "trailing": _trailing,
    "uniform": _uniform,
    "within": _within,
    "without_axes": _without_axes,
}
