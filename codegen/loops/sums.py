"""How sums are held while they grow, and what becomes of them.

Floats are held in double, integers in 64 bits that wrap around as their own type would.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.loops.scalar import Scalar

DOUBLE = Scalar("float64")


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of elements of a type."""

    scalar: Scalar  # of the elements, and of what becomes of them

    @classmethod
    def of(cls, dtype: str) -> Sums:
        """Sums of elements of this type."""
        return cls(Scalar(dtype))

    @property
    def ctype(self) -> str:
        """C type of a sum under way."""
        if self.scalar.floating:
            return "double"
        return "uint64_t"

    def wide(self, element: str) -> str:
        """C expression: an element as a term."""
        return f"({self.ctype}){element}"

    def narrow(self, total: str) -> str:
        """C expression: a sum as an element."""
        if self.scalar.dtype == "float64":
            return total
        return f"({self.scalar.ctype}){total}"

    def real(self, total: str) -> str:
        """A sum, or an element, as a double."""
        return f"(double){total if self.scalar.floating else self.narrow(total)}"

    def rounded(self, value: str) -> str:
        """A double as an element: integers are cut off."""
        if self.scalar.dtype != "float64":
            return DOUBLE.cast(value, self.scalar.dtype)
        return value


def double(value: float) -> str:
    """A constant of type double.

    >>> double(1e-05), double(-2)
    ('1e-05', '(-2.0)')
    """
    return DOUBLE.number(value)
