"""Every rule holds, is applied where it saves something, and refused where its guard is not proven."""

from collections import Counter

import numpy as np
import pytest

from lfopt.ops.reference import reference
from lfopt.rewrite import rewrite, rule
from lfopt.rewrite.stages import ALL_RULES
from lfopt.rewrite.terms import variables
from tests.cases import some
from tests.rewrite.rule_cases import BREAKING, Case, InvalidModel, bounds, draw

RULES = {
    rule.name + (f"  where {' and '.join(map(str, rule.guard))}" if rule.guard else ""): rule
    for rule in ALL_RULES
}
TRIES = 200


def seed_of(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def cases(rule, count, **options):
    """Cases whose shapes fit, each with the graph of the pattern."""
    rng, drawn = seed_of(rule.name), 0
    for _ in range(TRIES):
        case = draw(rule, rng, **options)
        try:
            graph = case.graph(rule.pattern)
        except InvalidModel:
            continue
        yield case, graph
        drawn += 1
        if drawn == count:
            return
    assert drawn, "no shapes fit the pattern"


def close(values, wanted, tolerance):
    """Equal where the wanted values are numbers, within a tolerance of the largest."""
    assert values.shape == wanted.shape
    assert values.dtype == wanted.dtype
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(values, wanted)
        return
    known = np.isfinite(wanted)
    assert known.any()
    scale = max(np.abs(wanted[known]).max(), 1e-3)
    np.testing.assert_allclose(values[known], wanted[known], rtol=0, atol=tolerance * scale)


def tolerance_of(case: Case) -> float:
    return (
        1e-6
        if any(np.dtype(t) == np.float32 for t in case.dtypes.values())
        else ROUNDED.get(case.rule.family, 1e-9)
    )


ROUNDED = {"composite": 1e-5}  # their constants are written as exporters round them


def test_rules_are_told_apart_by_what_they_say():
    assert len(RULES) == len(ALL_RULES)


def test_there_are_at_least_as_many_rules_as_the_paper_counts():
    """DNNFusion: 45 associative, 38 distributive, 66 commutative."""
    count = Counter(rule.family for rule in ALL_RULES)
    assert count["associative"] >= 45
    assert count["distributive"] >= 38
    assert count["commutative"] >= 66


@pytest.mark.parametrize("name", RULES)
def test_pattern_and_replacement_have_the_same_value(name):
    rule = RULES[name]
    compared = 0
    for case, graph in cases(rule, len(some(range(24)))):
        try:
            other = case.graph(rule.replacement)
        except InvalidModel:
            continue  # the replacement asks for more of the shapes; then it is refused
        if other.shape("y") != graph.shape("y"):
            continue
        with np.errstate(all="ignore"):
            wanted, replaced = (reference(g, case.feeds(g))["y"] for g in (graph, other))
        close(replaced, wanted, tolerance_of(case))
        compared += 1
    assert compared


@pytest.mark.parametrize("name", RULES)
def test_the_rule_is_applied_where_it_saves_something(name):
    rule = RULES[name]
    for case, _ in cases(rule, 60):
        try:
            graph = case.graph(rule.pattern, wrappers(rule, case))
        except InvalidModel:
            continue
        done = rewrite(graph, (rule,))
        if not done.applied:
            continue
        assert {step.rule for step in done.applied} == {rule.name}
        assert all(step.flops_after <= step.flops_before for step in done.applied)
        assert done.graph.inputs == graph.inputs
        assert done.graph.tensors["y"] == graph.tensors["y"]
        with np.errstate(all="ignore"):
            wanted, output = (reference(g, case.feeds(g))["y"] for g in (graph, done.graph))
        close(output, wanted, tolerance_of(case))
        return
    pytest.fail("it never applies")


def wrappers(rule, case):
    """Operators that show, of every variable that is no constant, what the guard asks for."""
    wrapper_of = {}
    for name in variables(rule.pattern):
        if name in case.constants or not any(
            name in c.variables and (c.subject in BREAKING or c.subject == "within") for c in rule.guard
        ):
            continue
        low, high, nonzero = bounds(rule, name)
        if low >= 1:
            wrapper_of[name] = "Cosh"
        elif low == -1 or (low <= -1.5 and 1 < high < 2):
            wrapper_of[name] = "Tanh"
        elif low >= 0:
            wrapper_of[name] = (
                "Sigmoid"
                if high not in (2.0,) or any(c.subject == "within" for c in rule.guard)
                else "Exp"
                if nonzero
                else "Abs"
            )
        elif high <= 0:
            wrapper_of[name] = "Exp Neg" if nonzero else "Abs Neg"
        else:
            wrapper_of[name] = "Exp"
    return wrapper_of


GUARDED = [name for name, rule in RULES.items() if any(c.subject in BREAKING for c in rule.guard)]


@pytest.mark.parametrize("name", GUARDED)
def test_the_rule_is_refused_where_its_guard_is_not_known_to_hold(name):
    rule = RULES[name]
    for case, graph in cases(rule, 6, valid=False):
        done = rewrite(graph, (rule,))
        assert not done.applied
        assert done.graph.operators == graph.operators
        assert {refusal.rule for refusal in done.refusals} <= {rule.name}
        assert done.refusals or case.constants


def test_a_false_rule_would_be_noticed():
    false = rule("associative", "Abs(a) + Abs(b) -> Abs(a + b)")
    for case, graph in cases(false, 1):
        other = case.graph(false.replacement)
        replaced, wanted = (reference(g, case.feeds(g))["y"] for g in (other, graph))
        with pytest.raises(AssertionError):
            close(replaced, wanted, 1e-9)


def test_every_letter_of_a_replacement_stands_in_its_pattern():
    for name, each in RULES.items():
        assert set(variables(each.replacement)) <= set(variables(each.pattern)), name
