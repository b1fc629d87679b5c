"""C expressions on single elements, by type: what NumPy computes, without C's undefined behaviour.

Operands are C names, or stand in brackets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen.layout import CTYPES, HALVES

# functions of math.h on floats -> ours
OWN = {
    **{
        name: f"real_{name}"
        for name in "acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p pow sin sinh tan".split()
    },
    "erf": "erf_1",
    "tanh": "tanh_1",
}
ANGLES = frozenset(["cos", "sin", "tan"])  # of which ours take angles up to a limit


@dataclass(frozen=True, slots=True)
class Scalar:
    """An element type, and C expressions on its elements."""

    dtype: str  # NumPy's name

    @property
    def ctype(self) -> str:
        """C's name of the type."""
        return CTYPES[self.dtype]

    @property
    def floating(self) -> bool:
        """Whether it is float or double."""
        return self.dtype in ("float32", "float64")

    @property
    def signed(self) -> bool:
        """Whether it has values below 0."""
        return self.floating or self.dtype.startswith("int")

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return 8 * np.dtype(self.dtype).itemsize

    @property
    def around(self) -> str:
        """The unsigned C type that integers are computed in, so that they wrap around.

        Short types would become int.
        """
        if self.bits == 64:
            return "uint64_t"
        return "uint32_t"

    def number(self, value: float) -> str:
        """A constant of a floating type.

        >>> Scalar("float32").number(0.1), Scalar("float64").number(-np.inf)
        ('0.1f', '-INFINITY')
        """
        if not np.isfinite(value):
            if np.isnan(value):
                return "NAN"
            if value > 0:
                return "INFINITY"
            return "-INFINITY"
        literal = f"{np.float32(value)!s}f" if self.dtype == "float32" else repr(float(value))
        if value < 0:
            return f"({literal})"
        return literal

    def function(self, name: str, *operands: str) -> str:
        """C expression: a call of a function of math.h, or of our own for floats (functions.h, prelude.h)."""
        if self.dtype == "float32" and name in OWN:
            return f"{OWN[name]}({', '.join(operands)})"
        return f"{name}{'f' if self.dtype == 'float32' else ''}({', '.join(operands)})"

    def arithmetic(self, sign: str, a: str, b: str) -> str:
        """C expression: a + b, a - b or a * b."""
        if self.floating:
            return f"({a} {sign} {b})"
        return f"({self.ctype})(({self.around}){a} {sign} ({self.around}){b})"

    def negative(self, a: str) -> str:
        """C expression: -a."""
        if self.floating:
            return f"-{a}"
        return self.arithmetic("-", "0", a)

    def larger(self, a: str, b: str) -> str:
        """The larger of two; what is not a number where one is not."""
        larger = f"({a} < {b} ? {b} : {a})"
        if self.floating:
            return f"({b} != {b} ? {b} : {larger})"
        return larger

    def smaller(self, a: str, b: str) -> str:
        """The smaller of two; what is not a number where one is not."""
        smaller = f"({a} > {b} ? {b} : {a})"
        if self.floating:
            return f"({b} != {b} ? {b} : {smaller})"
        return smaller

    def cast(self, a: str, to: str) -> str:
        """An element as one of another type.

        Floats that an integer cannot hold become what x86 makes of them (see prelude.h).
        """
        if self.dtype in HALVES:
            return Scalar("float32").cast(f"from_{self.ctype}({a})", to)
        if to in HALVES:
            return f"to_{CTYPES[to]}((float){a})"
        if to == "bool":
            return f"({a} != 0)"
        if not self.floating or Scalar(to).floating:
            return f"({CTYPES[to]}){a}"
        through = {"int64": "int64", "uint64": "uint64", "uint32": "int64"}.get(to, "int32")
        return f"({CTYPES[to]})to_{through}((double){a})"
