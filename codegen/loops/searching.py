"""Operators that search or add up along one axis: ArgMax, ArgMin, Hardmax, TopK, CumSum, CumProd.

Where the axis is that of rows and results are made row by row, the operand is there as a whole, and each row
goes along all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from codegen.loops.fibres import Fibres
from codegen.loops.nest import Array, Nest
from codegen.loops.reducing import fold_largest
from codegen.loops.scalar import Scalar
from codegen.loops.strided import Strided, StridedLoops, each

BLOCK = 256  # elements that are searched at a time
SKIPPED = 64  # elements that are passed over at a time


@contextmanager
def _others(nest: Nest, axis: int) -> Iterator[Callable[[str], list[str]]]:
    """Loops over all axes of the results but one: index along that -> the index."""
    rank = len(nest.results[0].shape)
    with nest.each(axes=[a for a in range(rank) if a != axis]) as indices:
        yield lambda k: [k if a == axis else indices[a] for a in range(rank)]


def _find(nest: Nest, x: Array, at: Callable[[str], Sequence[str]], extent: int, condition: str) -> None:
    """Set `best` to the index of the last element x that, seen from the first on, beats the `top` so far."""
    s = Scalar(x.dtype)
    nest.out("int best = 0;", f"{s.ctype} top = {x.at(at('0'))};")
    with nest.out.block(f"for (int k = 1; k < {extent}; k++)"):
        nest.out(f"const {s.ctype} x = {x.at(at('k'))};", f"if ({condition}) best = k, top = x;")


def arg_extreme(nest: Nest) -> None:
    """ArgMax, ArgMin: index of the first (or last) extreme element.

    What is not a number is none, unless it stands first: nothing is larger or smaller than that. Source: ONNX
    Runtime.
    """
    call = nest.call
    x = nest.operand(0)
    y = nest.results[0]
    axis = call.attribute("axis", 0) % len(x.shape)
    kept = bool(call.attribute("keepdims", 1))
    better = (">" if call.operator.kind == "ArgMax" else "<") + (
        "=" if call.attribute("select_last_index", 0) else ""
    )
    if not prod(x.shape):
        raise nest.unsupported("no elements", "one or more")
    fibres = Fibres(nest, x, [axis], reduced=True)
    if fibres.together:
        _search_together(fibres, better)
        return
    if fibres.dense and x.dtype == "float32" and len(better) == 1:
        _search_dense(fibres, better)
        return
    with nest.elements() as at:
        _find(nest, x, lambda k: [*at[:axis], k, *at[axis + kept :]], x.shape[axis], f"x {better} top")
        nest.out(f"{y.at(at)} = best;")


def _search_together(fibres: Fibres, better: str) -> None:
    """In neighbouring fibres at a time."""
    nest = fibres.nest
    ctype = fibres.x.ctype
    with fibres.each():
        fibres.variable(ctype, "top", fibres.first)
        fibres.variable("int", "best", "0")
        with fibres.fold() as element:
            top = fibres["top"]
            best = fibres["best"]
            nest.out(
                f"const {ctype} x_k = {element};",
                f"const int wins = x_k {better} {top};",
                f"{top} = wins ? x_k : {top};",
                f"{best} = wins ? {fibres.turn} : {best};",
            )
        with fibres.complete("best") as result:
            nest.out(f"{result} = {fibres['best']};")


def _search_dense(fibres: Fibres, better: str) -> None:
    """Block by block of a fibre that lies side by side: the best block, and its first such element."""
    nest = fibres.nest
    extent = fibres.x.shape[fibres.axes[0]]
    how, start = ("max", "-INFINITY") if better == ">" else ("min", "INFINITY")
    out = nest.out
    with fibres.each():
        out("float top = x[0];", "int best = 0, from = -1;")
        with out.block(f"for (int block = 0; block < {extent}; block += {BLOCK})"):
            out(f"const int stop = smaller(block + {BLOCK}, {extent});", f"float most = {start};")
            out(f"EACH_FOLDED(reduction({how}: most))")
            out(f"for (int k = block; k < stop; k++) most = x[k] {better} most ? x[k] : most;")
            out(f"if (most {better} top) top = most, from = block;")
        with out.block(f"for (int k = from; from >= 0 && k < {extent}; k++)"):
            out("if (x[k] == top) best = k, from = -1;")
        with fibres.complete("best") as result:
            out(f"{result} = best;")


def hardmax(nest: Nest) -> None:
    """1 at the first largest element along an axis, 0 elsewhere; what is not a number is the largest."""
    x = nest.operand(0)
    y = nest.results[0]
    axis = nest.call.attribute("axis", -1) % len(x.shape)
    fibres = Fibres(nest, x, [axis])
    if fibres.even and x.dtype == "float32" and x.shape[axis]:
        _mark_largest(fibres)
        return
    with _others(nest, axis) as at:
        largest = "x > top" + (" || (isnan(x) && !isnan(top))" if Scalar(x.dtype).floating else "")
        _find(nest, x, at, x.shape[axis], largest)
        with nest.each(axes=[axis]) as along:
            nest.out(f"{y.at(at(along[axis]))} = {along[axis]} == best;")


def _mark_largest(fibres: Fibres) -> None:
    """The first that is as large as the largest, or the first that is not a number."""
    nest = fibres.nest
    extent = fibres.length
    with fibres.each():
        fibres.variable("float", "most", "-INFINITY")
        fold_largest(fibres)
        if fibres.floats:
            with fibres.elements() as (_, result):
                nest.out(f"{result} = 0.0f;")
            nest.out(f"{fibres.result_at(f'first_equal(x, {extent}, most)')} = 1.0f;")
            return
        fibres.variable("int", "best", str(extent))
        with fibres.fold(best="min") as element:
            best = fibres["best"]
            most = fibres["most"]
            nest.out(
                f"const float v = {element};",
                f"const int wins = v == {most} || (v != v && {most} != {most});",
                f"{best} = wins && {fibres.turn} < {best} ? {fibres.turn} : {best};",
            )
        with fibres.elements() as (_, result):
            nest.out(f"{result} = {fibres.turn} == {fibres['best']};")


def cumulative(nest: Nest) -> None:
    """Sums or products from the start of an axis, or (reverse) from its end.

    Exclusive: without the element itself. Raises Unsupported for an axis that is computed.
    """
    call = nest.call
    x = nest.operand(0)
    y = nest.results[0]
    axes = call.ints(1)
    if axes is None:
        raise nest.unsupported("an axis that is computed", "a constant")
    axis = axes[0] % len(x.shape)
    s = Scalar(x.dtype)
    fibres = Fibres(nest, x, [axis])
    if fibres.together and _accumulated_by_rows(nest, axis):
        return
    if fibres.together and not call.attribute("reverse", 0):
        _accumulate_together(fibres)
        return
    with _others(nest, axis) as at:
        sign, nothing = ("*", 1) if call.operator.kind == "CumProd" else ("+", 0)
        nest.out(f"{s.ctype} total = {nothing};")
        extent, (first, stop) = x.shape[axis], nest.ends(axis)
        if call.attribute("reverse", 0):
            head = f"for (int k = {extent} - 1; k >= {first}; k--)"
        else:
            head = f"for (int k = 0; k < {stop}; k++)"
        with nest.out.block(head):
            wanted = " && ".join(nest.wanted({axis: "k"}))
            lines = [
                f"total = {s.arithmetic(sign, 'total', x.at(at('k')))};",
                (f"if ({wanted}) " if wanted else "") + f"{y.at(at('k'))} = total;",
            ]
            nest.out.all(reversed(lines) if call.attribute("exclusive", 0) else lines)


def _accumulated_by_rows(nest: Nest, axis: int) -> bool:
    """Each row across the axis is the one before it and a row of the operand.

    False where elements lie unevenly, a row is made alone, or threads would have nothing to share.
    """
    x = nest.operand(0)
    y = nest.results[0]
    s = Scalar(x.dtype)
    reverse = bool(nest.call.attribute("reverse", 0))
    exclusive = bool(nest.call.attribute("exclusive", 0))
    order = y.layout.order
    outer = [k for k in order[: order.index(axis)] if y.shape[k] > 1]
    inner = order[order.index(axis) + 1 :]
    steps = [[array.step(k) for k in inner] for array in (y, y, x)]
    even = (
        nest.evenly
        and nest.whole
        and all(type(array) is Array and array.stored in ("", array.ctype) for array in (x, y))
    )
    shared = not nest.sharing or bool(outer)
    even = even and y.shape[axis] > 1
    if not even or y.shape != y.layout.shape or any(None in own for own in steps) or not shared:
        return False
    sign, nothing = ("*", "1") if nest.call.operator.kind == "CumProd" else ("+", "0")
    extent = y.shape[axis]
    by = -1 if reverse else 1
    first = extent - 1 if reverse else 0
    with nest.each(axes=outer) as indices:

        def row(array: Array, k: str) -> str:
            at = [k if a == axis else indices.get(a, "0") for a in range(len(y.shape))]
            return f"&{array.at(at)}"

        head = f"for (int k = {first}; k {'>= 0' if reverse else f'< {extent}'}; k += {by})"
        with nest.out.block(head):
            nest.out(f"const int begins = k == {first};")
            nest.out(f"const int last = begins ? k : k - ({by});")
            pointers = [row(y, "k"), row(y, "last"), row(x, "last" if exclusive else "k")]
            arrays = tuple(
                Strided(pointer, tuple(step or 0 for step in own), s.ctype)
                for pointer, own in zip(pointers, steps, strict=True)
            )
            loops = StridedLoops(tuple(y.shape[k] for k in inner), arrays).merged()
            lines, loops = loops.named(("to", "before", "from"))
            nest.out.all(lines)
            heads, (result, before, element) = each(loops, shared=False)
            start = nothing if exclusive else s.arithmetic(sign, nothing, element)
            for condition, value in (("if (begins)", start), ("else", s.arithmetic(sign, before, element))):
                with nest.out.nested([condition, *heads]):
                    nest.out(f"{result} = {value};")
    return True


def _accumulate_together(fibres: Fibres) -> None:
    """In neighbouring fibres at a time, forwards."""
    nest = fibres.nest
    s = Scalar(fibres.x.dtype)
    sign, nothing = ("*", "1") if nest.call.operator.kind == "CumProd" else ("+", "0")
    with fibres.each():
        fibres.variable(s.ctype, "total", nothing)
        with fibres.elements() as (element, result):
            total = fibres["total"]
            lines = [f"{total} = {s.arithmetic(sign, total, element)};", f"{result} = {total};"]
            nest.out.all(reversed(lines) if nest.call.attribute("exclusive", 0) else lines)


Stored = Callable[[str], str]  # C expression of an element of the operand -> of what is stored of it


def top_k(nest: Nest, stored: Stored | None = None) -> None:
    """The k best elements along an axis, best first, and their indices; of equal ones, the lower first.

    They come best first even if they are not asked to be sorted.
    """
    call = nest.call
    x = nest.operand(0)
    axis = call.attribute("axis", -1) % len(x.shape)
    if prod(call.result):
        with _others(nest, axis) as at:
            if nest.wanted({axis: "rank"}):
                _rank(nest, x, at, axis, stored)
            else:
                _insert(nest, x, at, axis, stored)


def _before(nest: Nest, a: str, b: str) -> str:
    """Whether an element stands before another: what is not a number counts as the largest."""
    largest = bool(nest.call.attribute("largest", 1))
    compared, nan, other = (f"{a} > {b}", a, b) if largest else (f"{a} < {b}", b, a)
    if Scalar(nest.operand(0).dtype).floating:
        return f"({compared} || (isnan({nan}) && !isnan({other})))"
    return f"({compared})"


def _asked(nest: Nest) -> dict[int, Array]:
    """Values (0) and indices (1), as far as they are asked for."""
    return dict(
        zip([k for k, name in enumerate(nest.call.operator.outputs) if name], nest.results, strict=True)
    )


def _insert(nest: Nest, x: Array, at: Callable[[str], list[str]], axis: int, stored: Stored | None) -> None:
    """Put every element among the best so far: those behind it move on, and the last falls out."""
    out = nest.out
    asked = _asked(nest)
    count = nest.call.result[axis]
    extent = x.shape[axis]
    if [*asked] == [0, 1] and _insert_in_order(nest, x, at, axis):
        if stored:
            here = asked[0].at(at("k"))
            out(f"for (int k = 0; k < {count}; k++) {here} = {stored(here)};")
        return
    out("int found = 0;")
    with out.block(f"for (int i = 0; i < {extent}; i++)"):
        out(f"const {x.ctype} x = {x.at(at('i'))};", f"int k = found < {count} ? found++ : {count};")
        if 0 in asked:
            last = f"({x.ctype}){asked[0].at(at('k - 1'))}"
        else:
            last = x.at(at(f"(int){asked[1].at(at('k - 1'))}"))
        with out.block("for (; k > 0; k--)"):
            out(
                f"const {x.ctype} last = {last};",
                f"if (!{_before(nest, 'x', 'last')}) break;",
                f"if (k == {count}) continue;",
            )
            out.all(f"{y.at(at('k'))} = {y.at(at('k - 1'))};" for y in asked.values())
        with out.block(f"if (k < {count})"):
            out.all(f"{y.at(at('k'))} = {'i' if k else f'({y.ctype})x'};" for k, y in asked.items())
    if stored and 0 in asked:
        here = asked[0].at(at("k"))
        out(f"for (int k = 0; k < {count}; k++) {here} = {stored(here)};")


def _insert_in_order(nest: Nest, x: Array, at: Callable[[str], list[str]], axis: int) -> bool:
    """As `_insert`, of floats that lie side by side; False where that cannot be.

    Blocks without an element that is better than the last of the best so far are passed over.
    """
    values, indices = _asked(nest).values()
    arrays = (x, values, indices)
    even = nest.evenly and all(type(array) is Array and array.step(axis) == 1 for array in arrays)
    if not even or x.dtype != "float32" or not nest.whole:
        return False
    out = nest.out
    count = nest.call.result[axis]
    extent = x.shape[axis]
    worse = "<=" if nest.call.attribute("largest", 1) else ">="
    out(
        f"const float *const from = &{x.at(at('0'))};",
        f"float *const best = &{values.at(at('0'))};",
        f"int64_t *const places = &{indices.at(at('0'))};",
        "int found = 0;",
    )
    with out.block(f"for (int block = 0; block < {extent}; block += {SKIPPED})"):
        out(f"const int stop = smaller(block + {SKIPPED}, {extent});")
        with out.block(f"if (found == {count})"):
            out(f"const float last = best[{count - 1}];", "int some = 0;")
            out("EACH_FOLDED(reduction(|: some))")
            out(f"for (int i = block; i < stop; i++) some |= !(from[i] {worse} last);")
            out("if (!some) continue;")
        with out.block("for (int i = block; i < stop; i++)"):
            out("const float x = from[i];")
            out(f"if (found == {count} && !{_before(nest, 'x', f'best[{count - 1}]')}) continue;")
            out("int low = 0, high = found;")
            with out.block("while (low < high)"):
                out("const int middle = (low + high) / 2;")
                out(f"if ({_before(nest, 'x', 'best[middle]')}) high = middle;", "else low = middle + 1;")
            out(f"const int moved = (found < {count} ? found++ : {count - 1}) - low;")
            out("memmove(best + low + 1, best + low, (size_t)moved * sizeof *best);")
            out("memmove(places + low + 1, places + low, (size_t)moved * sizeof *places);")
            out("best[low] = x;", "places[low] = i;")
    return True


def _rank(nest: Nest, x: Array, at: Callable[[str], list[str]], axis: int, stored: Stored | None) -> None:
    """Put elements where they belong by their rank: how many stand before them.

    For rows of the result that are made one by one: some of the best alone.
    """
    out = nest.out
    extent = x.shape[axis]
    value = stored("x") if stored else "x"
    with out.block(f"for (int i = 0; i < {extent}; i++)"):
        out(f"const {x.ctype} x = {x.at(at('i'))};", "int rank = 0;")
        with out.block(f"for (int k = 0; k < {extent}; k++)"):
            out(f"const {x.ctype} other = {x.at(at('k'))};")
            out(f"rank += {_before(nest, 'other', 'x')} || (k < i && !{_before(nest, 'x', 'other')});")
        for result, (k, y) in enumerate(_asked(nest).items()):
            out(
                f"if ({' && '.join(nest.wanted({axis: 'rank'}, result))}) {y.at(at('rank'))} = "
                f"{'i' if k else value};"
            )


LOOPS: dict[str, Callable[[Nest], None]] = {
    "ArgMax": arg_extreme,
    "ArgMin": arg_extreme,
    "CumProd": cumulative,
    "CumSum": cumulative,
    "Hardmax": hardmax,
    "TopK": top_k,
}
