"""Algebraic properties of the operators, as tables: what the rules of the four families are derived from.

In a form, {a} stands for an operand: "Clip[x]({a})" is a Clip with any settings.
"""

from __future__ import annotations

from typing import NamedTuple

# functions with attributes or inputs beside their operand
LABELLED = frozenset("Celu Clip Elu Gelu HardSigmoid LeakyRelu Selu Shrink Swish ThresholdedRelu".split())


class Function(NamedTuple):
    """An elementwise function of one operand."""

    kind: str
    where: str = ""  # what a property needs to be known of an operand {a}

    def __call__(self, operand: str) -> str:
        """The function of a term."""
        if self.kind in LABELLED:
            return f"{self.kind}[x]({operand})"
        return f"{self.kind}({operand})"

    def guard(self, *operands: str) -> str:
        """What must be known of these operands."""
        if self.where:
            return " and ".join(self.where.replace("{a}", operand) for operand in operands)
        return ""

    @property
    def exact(self) -> bool:
        """Whether what holds for it holds to the last bit, on integers too."""
        return self.kind in EXACT


EXACT = frozenset("Abs BitwiseNot Ceil Clip Floor Identity Neg Not Relu Round Sign".split())


def _functions(kinds: str, where: str = "") -> tuple[Function, ...]:
    return tuple(Function(kind, where) for kind in kinds.split())


# f(a) <= f(b) where a <= b; f(a) >= f(b) where a <= b.
INCREASING = (
    *_functions(
        "Acosh Asin Asinh Atan Atanh Ceil Clip Erf Exp Floor Log Relu Round Sigmoid Sign Sinh Softplus "
        "Softsign Sqrt Tanh"
    ),
    *_functions("Celu Elu HardSigmoid LeakyRelu Selu", "rising(x)"),
)
DECREASING = (*_functions("Acos Neg"), Function("Reciprocal", "{a} > 0"))

# f(a * b) = f(a) * f(b), and so for quotients and products of many.
MULTIPLICATIVE = (
    Function("Abs"),
    Function("Sign"),
    Function("Sqrt", "{a} >= 0"),
    Function("Reciprocal", "{a} != 0"),
)

# f(a + b) = f(a) + f(b) where f folds or slides: every one of them is told how, [x].
ADDITIVE = ("ReduceSum", "ReduceMean", "AveragePool", "CumSum", "GlobalAveragePool")

IDEMPOTENT = _functions("Abs Ceil Clip Floor Relu Round Sign")  # f(f(a)) = f(a)
TO_INTEGERS = ("Ceil", "Floor", "Round", "Sign")  # results that Ceil, Floor and Round leave as they are
INVOLUTIONS = (*_functions("BitwiseNot Neg Not"), Function("Reciprocal", "{a} != 0"))  # f(f(a)) = a

EVEN = _functions("Abs Cos Cosh")  # f(-a) = f(a)
EVEN_FOLDS = ("ReduceL1", "ReduceL2", "ReduceSumSquare")
# f(-a) = -f(a)
ODD = _functions("Asin Asinh Atan Atanh Erf Reciprocal Round Sign Sin Sinh Softsign Tan Tanh")

# outer(inner(a)) = a, where that keeps its digits.
INVERSES: tuple[tuple[str, str, str], ...] = (
    ("Acos", "Cos", "0 <= a <= 3.14"),
    ("Asin", "Sin", "-1.57 <= a <= 1.57"),
    ("Asinh", "Sinh", ""),
    ("Atan", "Tan", "-1.57 <= a <= 1.57"),
    ("Cos", "Acos", "-1 <= a <= 1"),
    ("Cosh", "Acosh", "a >= 1"),
    ("Exp", "Log", "a > 0"),
    ("Log", "Exp", ""),
    ("Sin", "Asin", "-1 <= a <= 1"),
    ("Sinh", "Asinh", ""),
    ("Tan", "Atan", ""),
    ("Tanh", "Atanh", "-1 <= a <= 1"),
)
# Left as it is where its operand is not negative.
PLAIN_IF_POSITIVE = (
    "Abs({a})",
    "Relu({a})",
    "LeakyRelu[x]({a})",
    "Elu[x]({a})",
    "Celu[x]({a})",
    "PRelu({a}, b)",
)

ELEMENTWISE = _functions(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu "
    "HardSigmoid HardSwish LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin "
    "Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
)
BINARY = (
    "{a} + {b}",
    "{a} - {b}",
    "{a} * {b}",
    "{a} / {b}",
    *(f"{kind}({{a}}, {{b}})" for kind in ("Max", "Min", "And", "Or", "Xor")),
)
# each absorbs and distributes over the other
LATTICES = (("Max", "Min"), ("And", "Or"), ("BitwiseAnd", "BitwiseOr"))
COMPARISONS = (
    ("Greater", "Less"),
    ("GreaterOrEqual", "LessOrEqual"),
    ("Less", "Greater"),
    ("LessOrEqual", "GreaterOrEqual"),
    ("Equal", "Equal"),
)
