"""Ways to tamper with a plan: its figures, its places, its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from lfopt.ir import (
    Box,
    Carry,
    Compute,
    DramBytes,
    Graph,
    Loop,
    Node,
    Place,
    Plan,
    PlannedGroup,
    Transfer,
    cut,
    row_axis,
)
from tests.following import follow, with_places, with_steps

Tamper = Callable[[np.random.Generator, Graph, Plan], Plan | None]
ALL = "lbdf brr resident strips tiled opaque"


def named(tamper: Tamper, name: str) -> Tamper:
    tamper.__name__ = name
    return tamper


def group_changed(
    change: Callable[[np.random.Generator, PlannedGroup, Plan], PlannedGroup | None],
    modes: str = ALL,
    *,
    steps: bool = False,
    name: str = "",
) -> Tamper:
    """One group, of one of these modes, is changed; totals follow."""

    def tamper(rng: np.random.Generator, graph: Graph, plan: Plan) -> Plan | None:
        candidates = [
            g
            for g, group in enumerate(plan.groups)
            if group.mode in modes.split() and (group.steps or not steps)
        ]
        for g in rng.permutation(candidates):
            changed = change(rng, plan.groups[g], plan)
            if changed is not None and changed != plan.groups[g]:
                return follow(replace(plan, groups=(*plan.groups[:g], changed, *plan.groups[g + 1 :])))
        return None

    return named(tamper, name or change.__name__)


def class_changed(entry: str, by: int) -> Tamper:
    def change(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup | None:
        if not group.steps and group.mode == "tiled" and plan.traffic == "tiled":
            return None  # not recounted
        return replace(group, dram=replace(group.dram, **{entry: getattr(group.dram, entry) + by}))

    return group_changed(change, name=f"{entry}_bytes_{by:+}")


def output_called_input(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup:
    return replace(group, dram=replace(group.dram, input=group.dram.input + 1, output=group.dram.output - 1))


def nothing_moved_where_it_cannot_be_recounted(
    rng: np.random.Generator, group: PlannedGroup, plan: Plan
) -> PlannedGroup | None:
    return None if group.steps or plan.traffic != "tiled" else replace(group, dram=DramBytes())


def operator_left_out(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup:
    return replace(group, nodes=group.nodes[1:])


def operator_twice(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup:
    return replace(group, nodes=(*group.nodes, group.nodes[0]))


def unknown_operator(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup:
    return replace(group, nodes=(*group.nodes[:-1], "nobody"))


def operators_in_another_order(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup:
    return replace(group, nodes=group.nodes[::-1])


def other_id(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup:
    return replace(group, id=group.id + 1)


def other_mode(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup:
    return replace(
        group, mode=str(rng.choice([mode for mode in ("opaque", "excluded") if mode != group.mode]))
    )  # type: ignore[arg-type]


def mode_of_another_scheme(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup | None:
    others = [scheme for scheme in ("lbdf", "brr", "resident") if plan.scheme not in (scheme, "auto")]
    return replace(group, mode=str(rng.choice(others))) if others else None  # type: ignore[arg-type]


def steps_taken_away(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup | None:
    return replace(group, steps=(), places=(), unexecutable="too many to write down")


def steps_taken_away_without_a_word(
    rng: np.random.Generator, group: PlannedGroup, plan: Plan
) -> PlannedGroup | None:
    return replace(group, steps=(), places=())


def called_unexecutable(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup | None:
    return replace(group, unexecutable="so it is")


FIGURES = [
    *(class_changed(entry, by) for entry in ("input", "output", "weight") for by in (-1, 1)),
    *(class_changed(entry, 1) for entry in ("parameter", "spill")),
    group_changed(output_called_input, "lbdf brr resident strips opaque"),
    group_changed(nothing_moved_where_it_cannot_be_recounted, "tiled"),
    group_changed(operator_left_out, f"{ALL} excluded"),
    group_changed(operator_twice, f"{ALL} excluded"),
    group_changed(unknown_operator, f"{ALL} excluded"),
    group_changed(operators_in_another_order),
    group_changed(other_id),
    group_changed(other_mode, "lbdf brr resident strips tiled"),
    group_changed(mode_of_another_scheme, "lbdf brr resident"),
    group_changed(steps_taken_away, "lbdf resident strips"),
    group_changed(steps_taken_away_without_a_word, steps=True),
    group_changed(called_unexecutable, steps=True),
]


def place_changed(
    change: Callable[[np.random.Generator, Place, PlannedGroup], Place | None], modes: str = ALL
) -> Tamper:
    def tamper(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup | None:
        for k in rng.permutation(len(group.places)):
            changed = change(rng, group.places[k], group)
            if changed is not None:
                return with_places(group, (*group.places[:k], changed, *group.places[k + 1 :]))
        return None

    return group_changed(tamper, modes, steps=True, name=change.__name__)


def slot_too_small(rng: np.random.Generator, place: Place, group: PlannedGroup) -> Place | None:
    return replace(place, slot_bytes=place.slot_bytes - 1)


def slot_too_large(rng: np.random.Generator, place: Place, group: PlannedGroup) -> Place:
    return replace(place, slot_bytes=place.slot_bytes + 1)


def ring_a_row_too_small(rng: np.random.Generator, place: Place, group: PlannedGroup) -> Place | None:
    return replace(place, slots=place.slots - 1) if place.purpose == "map" else None


def resident_map_a_row_too_small(rng: np.random.Generator, place: Place, group: PlannedGroup) -> Place | None:
    return replace(place, slots=place.slots - 1) if place.purpose == "map" and place.bytes else None


def ring_a_row_too_large(rng: np.random.Generator, place: Place, group: PlannedGroup) -> Place | None:
    return replace(place, slots=place.slots + 1) if place.bytes else None


def other_purpose(rng: np.random.Generator, place: Place, group: PlannedGroup) -> Place:
    return replace(
        place, purpose=str(rng.choice([p for p in ("map", "weight", "sum") if p != place.purpose]))
    )  # type: ignore[arg-type]


def moved_onto_another(rng: np.random.Generator, place: Place, group: PlannedGroup) -> Place | None:
    others = [other for other in group.places if other is not place and other.bytes and place.bytes]
    return replace(place, address=others[int(rng.integers(len(others)))].address) if others else None


def moved_below_zero(rng: np.random.Generator, place: Place, group: PlannedGroup) -> Place:
    return replace(place, address=-1)


def moved_out_of_the_buffer(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup:
    (*rest, last) = group.places
    return with_places(group, (*rest, replace(last, address=plan.hardware.buffer_bytes - last.bytes)))


def place_missing(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup:
    return with_places(group, group.places[:-1])


def place_for_nothing(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup:
    return replace(group, places=(*group.places, Place("nothing", "map", 0, 1, 0)))


def two_places_of_one_name(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup | None:
    return (
        replace(group, places=(*group.places[:-1], replace(group.places[-1], name=group.places[0].name)))
        if len(group.places) > 1
        else None
    )


PLACES = [
    place_changed(slot_too_small),
    place_changed(slot_too_large),
    place_changed(ring_a_row_too_small, "lbdf strips"),
    place_changed(resident_map_a_row_too_small, "resident"),
    place_changed(ring_a_row_too_large, "lbdf strips"),
    place_changed(other_purpose),
    place_changed(moved_onto_another, "lbdf strips tiled"),
    place_changed(moved_below_zero),
    group_changed(moved_out_of_the_buffer, steps=True),
    group_changed(place_missing, steps=True),
    group_changed(place_for_nothing, steps=True),
    group_changed(two_places_of_one_name, steps=True),
]
Path = tuple[int, ...]


def written(nodes: tuple[Node, ...], before: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Steps and loops, with where they stand."""
    for k, node in enumerate(nodes):
        yield (*before, k), node
        if isinstance(node, Loop):
            yield from written(node.body, (*before, k))


def edited(nodes: tuple[Node, ...], path: Path, by: tuple[Node, ...]) -> tuple[Node, ...]:
    """The same with something else in the place of one node."""
    k, *rest = path
    node = nodes[k]
    if rest:
        assert isinstance(node, Loop)
        by = (replace(node, body=edited(node.body, tuple(rest), by)),)
    return (*nodes[:k], *by, *nodes[k + 1 :])


def step_changed(
    change: Callable[[np.random.Generator, Node, PlannedGroup], tuple[Node, ...] | None],
    modes: str = ALL,
    *,
    follows: bool = True,
    name: str = "",
) -> Tamper:
    """One step or loop is changed; what it moves follows if told so."""

    def tamper(rng: np.random.Generator, group: PlannedGroup, plan: Plan) -> PlannedGroup | None:
        steps_with_paths = list(written(group.steps))
        for k in rng.permutation(len(steps_with_paths)):
            path, node = steps_with_paths[k]
            changed = change(rng, node, group)
            if changed is not None and changed != (node,):
                steps = edited(group.steps, path, changed)
                return with_steps(group, steps, plan.hardware) if follows else replace(group, steps=steps)
        return None

    return group_changed(tamper, modes, steps=True, name=name or change.__name__)


def is_load(node: Node, kind: str) -> bool:
    return isinstance(node, Transfer) and not node.store and node.kind == kind and not node.gather


def drop(what: Callable[[Node], bool], modes: str = ALL, name: str = "") -> Tamper:
    return step_changed(lambda rng, node, group: () if what(node) else None, modes, name=name)


def double(what: Callable[[Node], bool], modes: str = ALL, name: str = "") -> Tamper:
    return step_changed(lambda rng, node, group: (node, node) if what(node) else None, modes, name=name)


def smaller(box: Box, axis: int) -> Box | None:
    start, stop = box[axis]
    return cut(box, axis, (start, stop - 1)) if stop - start > 1 else None


def shrink(what: Callable[[Node], bool], modes: str = ALL, name: str = "") -> Tamper:
    """One element less along one axis."""

    def change(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
        if isinstance(node, (Loop, Carry)) or not what(node):
            return None
        box = node.box if isinstance(node, Transfer) else node.boxes[0]
        for axis in rng.permutation(len(box)):
            if (less := smaller(box, int(axis))) is not None:
                if isinstance(node, Compute):
                    return (replace(node, boxes=(less, *node.boxes[1:])),)
                size = (
                    node.row_bytes
                    * int(np.prod([b - a for a, b in less]))
                    // int(np.prod([b - a for a, b in box]))
                )
                return (replace(node, box=less, row_bytes=size),)
        return None

    return step_changed(change, modes, name=name)


def a_turn_less(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    return (replace(node, count=node.count - 1),) if isinstance(node, Loop) else None


def a_turn_more(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    return (replace(node, count=node.count + 1),) if isinstance(node, Loop) else None


def a_loop_of_nothing(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...]:
    return Loop(0, (node,)), node


def altered(entry: str, by: int, kinds: type = Transfer) -> Tamper:
    def change(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
        return (replace(node, **{entry: getattr(node, entry) + by}),) if isinstance(node, kinds) else None

    return step_changed(change, follows=False, name=f"{entry}_of_a_step_{by:+}")


def other_class(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    if not isinstance(node, Transfer):
        return None
    others = [kind for kind in ("input", "output", "weight", "parameter", "spill") if kind != node.kind]
    return (replace(node, kind=str(rng.choice(others))),)  # type: ignore[arg-type]


def no_such_place(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    if isinstance(node, Loop):
        return None
    return (
        replace(node, places=(len(group.places),) * len(node.places))
        if isinstance(node, Compute)
        else replace(node, place=len(group.places)),
    )


def made_nowhere(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    return (replace(node, places=(-1,) * len(node.places)),) if isinstance(node, Compute) else None


def stored_instead_of_loaded(
    rng: np.random.Generator, node: Node, group: PlannedGroup
) -> tuple[Node, ...] | None:
    return (replace(node, store=not node.store),) if isinstance(node, Transfer) and not node.gather else None


def another_tensor(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    names = [
        name for name in (*group.inputs, *group.outputs) if isinstance(node, Transfer) and name != node.tensor
    ]
    return (
        (replace(node, tensor=str(rng.choice(names))),)
        if isinstance(node, Transfer) and not node.gather and names
        else None
    )


def another_operator(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    return (replace(node, operator="nobody"),) if isinstance(node, Compute) else None


def one_row_on(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    """A box moves by one along its row axis; its slot with it."""
    if (
        not isinstance(node, Transfer)
        or node.kind == "weight"
        or (axis := row_axis(tuple(b - a for a, b in node.box))) is None
    ):
        return None
    start, stop = node.box[axis]
    return (replace(node, box=cut(node.box, axis, (start + 1, stop + 1)), slot=node.slot + 1),)


def other_move(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    """A step in a loop moves by one more along an axis."""
    if isinstance(node, Loop) or not node.strides or not node.strides[-1]:
        return None
    *outer, last = node.strides
    k = int(rng.integers(len(last) - isinstance(node, Transfer))) if len(last) > 1 else 0
    return (replace(node, strides=(*outer, (*last[:k], last[k] + 1, *last[k + 1 :]))),)


def weights_after_their_use(
    rng: np.random.Generator, node: Node, group: PlannedGroup
) -> tuple[Node, ...] | None:
    """The steps of a loop change places."""
    if not isinstance(node, Loop) or not is_load(node.body[0], "weight"):
        return None
    return (replace(node, body=(*node.body[1:], node.body[0])),)


def sums_not_begun(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    return (replace(node, first=not node.first),) if isinstance(node, Compute) else None


def sums_not_finished(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    return (replace(node, last=not node.last),) if isinstance(node, Compute) else None


def sums_elsewhere(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    return (
        (replace(node, accumulator=-1 if node.accumulator >= 0 else 0),)
        if isinstance(node, Compute)
        else None
    )


def other_input_channels(
    rng: np.random.Generator, node: Node, group: PlannedGroup
) -> tuple[Node, ...] | None:
    if not isinstance(node, Compute) or node.inputs is None:
        return None
    low, high = node.inputs
    return (replace(node, inputs=(low, high - 1) if high - low > 1 else (low + 1, high + 1)),)


def flight_cut_short(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    return (replace(node, then=node.then[:-1]),) if isinstance(node, Compute) and node.then else None


def flight_too_long(rng: np.random.Generator, node: Node, group: PlannedGroup) -> tuple[Node, ...] | None:
    if not isinstance(node, Compute) or len(node.boxes) != 1:
        return None
    return (replace(node, then=(*node.then, str(rng.choice(group.nodes)))),)


def flight_in_another_order(
    rng: np.random.Generator, node: Node, group: PlannedGroup
) -> tuple[Node, ...] | None:
    if not isinstance(node, Compute) or not node.then:
        return None
    head, *then = (*node.then, node.operator)
    return (replace(node, operator=head, then=tuple(then)),)


STEPS = [
    drop(lambda node: is_load(node, "input"), "lbdf brr resident strips", "load_of_a_map_dropped"),
    drop(lambda node: is_load(node, "weight"), name="load_of_weights_dropped"),
    drop(lambda node: isinstance(node, Transfer) and node.store, name="store_dropped"),
    drop(lambda node: isinstance(node, Compute), name="computation_dropped"),
    double(lambda node: is_load(node, "input"), "lbdf brr resident strips", "load_of_a_map_twice"),
    double(lambda node: is_load(node, "weight"), "lbdf brr resident strips", "load_of_weights_twice"),
    double(lambda node: isinstance(node, Transfer) and node.store, name="store_twice"),
    double(lambda node: isinstance(node, Compute), "lbdf resident strips tiled", "computation_twice"),
    shrink(lambda node: is_load(node, "input"), "lbdf brr resident strips", "load_of_a_map_shrunk"),
    shrink(lambda node: is_load(node, "weight"), name="load_of_weights_shrunk"),
    shrink(lambda node: isinstance(node, Transfer) and node.store, name="store_shrunk"),
    shrink(lambda node: isinstance(node, Compute), name="computation_shrunk"),
    step_changed(a_turn_less),
    step_changed(a_turn_more, "lbdf resident strips"),
    step_changed(a_loop_of_nothing),
    *(altered(entry, by) for entry in ("rows", "row_bytes") for by in (-1, 1)),
    altered("slot", -1000),
    altered("offset", 1000),
    step_changed(other_class),
    step_changed(no_such_place),
    step_changed(made_nowhere, "lbdf resident strips tiled"),
    step_changed(stored_instead_of_loaded),
    step_changed(another_tensor),
    step_changed(another_operator),
    step_changed(one_row_on, "lbdf brr resident strips"),
    step_changed(other_move, "lbdf resident strips"),
    step_changed(weights_after_their_use),
    step_changed(sums_not_begun),
    step_changed(sums_not_finished),
    step_changed(sums_elsewhere),
    step_changed(other_input_channels),
    step_changed(flight_cut_short, "lbdf resident strips tiled"),
    step_changed(flight_too_long),
    step_changed(flight_in_another_order, "lbdf resident strips tiled"),
]  # fmt: skip

# What may leave a plan that is true, and moves, computes or takes more than it needs.
WASTEFUL = {
    "slot_too_large",
    "ring_a_row_too_large",
    "moved_onto_another",
    "load_of_a_map_twice",
    "load_of_weights_twice",
    "computation_twice",
}
