"""Apply rules greedily: of all that match in a sub-graph, the one that saves most, until none saves anything.

Source: DNNFusion (PLDI'21, arXiv 2108.13342), its graph rewriting: the graph is cut at operators that are
neither associative nor distributive nor commutative, and in each part the rule with the largest reduction of
floating-point operations is applied, to a fixpoint. Ties are broken by fewer operators, then fewer tensors
read, then cheaper operators.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from lfopt.ir import Operator
from lfopt.rewrite.draft import Draft, ReplacementError, folded
from lfopt.rewrite.facts import Facts
from lfopt.rewrite.flops import HARDNESS, flops
from lfopt.rewrite.guards import is_match, refusal
from lfopt.rewrite.log import Applied, Log
from lfopt.rewrite.match import ASSOCIATIVE, Chain, flattened, is_inner, matches
from lfopt.rewrite.mutable_graph import MutableGraph
from lfopt.rewrite.rule import Match, Rule
from lfopt.rewrite.terms import Apply, Number, Term, depth, subterms

REAL = ("float", "bfloat")
# readers of a tensor: of up to so many, those left are looked at again at once; else in the next round
FEW = 4
MATCHES = 8  # of one rule at one operator that are weighed: in a long chain most are alike
# most rewrites per operator of a scope: ties break locally, so only operations and operators surely fall
STEPS = 100
SMALLER_FIRST = "operands of a chain: constants meet first, then small shapes"


class Gain(NamedTuple):
    """What a rewrite saves, the most important first."""

    flops: int
    operators: int
    reads: int  # tensors read, each once
    hardness: int


@dataclass(frozen=True)
class Candidate:
    """A rewrite that could be applied."""

    rule: str
    family: str
    root: Operator
    draft: Draft
    result: str  # tensor that takes the place of the root's
    dying: tuple[Operator, ...]
    before: int  # FLOPs of what goes
    after: int  # FLOPs of what comes
    gain: Gain


@dataclass(frozen=True)
class Index:
    """Rules by the kind of their root, each with the kinds that must stand before it."""

    rules: dict[str, list[tuple[Rule, frozenset[str]]]] = field(
        default_factory=dict[str, list[tuple[Rule, frozenset[str]]]]
    )
    depth: int = 1  # of the deepest pattern
    reorders: bool = False  # whether chains without a rule are put in order, too

    @classmethod
    def of(cls, rules: Iterable[Rule], *, reorders: bool = False) -> Index:
        """The index of some rules."""
        by_kind: dict[str, list[tuple[Rule, frozenset[str]]]] = defaultdict(list)
        deepest = 1
        for rule in rules:
            assert isinstance(rule.pattern, Apply), f"{rule.name}: the pattern is no operator"
            operands = flattened(rule.pattern) if rule.pattern.kind in ASSOCIATIVE else rule.pattern.operands
            needs = {
                t.kind if isinstance(t, Apply) else "number"
                for t in operands
                if isinstance(t, Apply | Number)
            }
            by_kind[rule.pattern.kind].append((rule, frozenset(needs)))
            deepest = max(deepest, depth(rule.pattern))
        return cls(dict(by_kind), deepest, reorders)


@dataclass
class Engine:
    """Rules at work on a mutable graph."""

    mutable: MutableGraph
    facts: Facts
    log: Log

    def run_to_fixpoint(self, index: Index, scope: Iterable[str]) -> int:
        """Apply rules in a scope until none saves anything; the number applied.

        The scope are these operators, and those that come in their place.
        """
        heap: list[tuple[tuple[int, ...], int, str]] = []
        count = serial = 0
        todo = dict.fromkeys(scope)
        inside = set(todo)
        limit = STEPS * len(todo)
        while (todo or heap) and count < limit:
            for name in todo:
                if (best := self.best(index, name)) is not None:
                    heapq.heappush(heap, (tuple(-g for g in best.gain), serial, name))
                    serial += 1
            todo = {}
            if not heap:
                break
            promised, _, name = heapq.heappop(heap)
            best = self.best(index, name)
            if best is None:
                continue
            if (priority := tuple(-g for g in best.gain)) != promised:
                heapq.heappush(heap, (priority, serial, name))
                serial += 1
                continue
            came = self.apply(best)
            inside.update(came)
            count += 1
            todo = {near: None for near in self._near(best, came, index.depth) if near in inside}
        return count

    def best(self, index: Index, name: str) -> Candidate | None:
        """The rewrite rooted at an operator that saves most."""
        operator = self.mutable.operators.get(name)
        if operator is None or not self.mutable.is_plain(operator) or is_inner(self.mutable, operator):
            return None
        rules = index.rules.get(operator.kind, [])
        chain = Chain.of(self.mutable, operator) if operator.kind in ASSOCIATIVE else None
        kinds = {self._kind(tensor) for tensor in (chain.leaves if chain else operator.inputs)}
        candidates: list[Candidate] = []
        for rule, needs in rules:
            if needs <= kinds and isinstance(rule.pattern, Apply):
                for match in islice(matches(self.mutable, rule.pattern, operator, chain), MATCHES):
                    candidates.extend(self._judged(rule, operator, match))
        if chain and index.reorders and len(chain.leaves) > 2:
            candidates.extend(self._reordered(operator, chain))
        return max(candidates, key=lambda candidate: candidate.gain, default=None)

    def apply(self, chosen: Candidate) -> list[str]:
        """Carry a rewrite out; the names of the operators that came."""
        mutable = self.mutable
        draft = chosen.draft
        root = chosen.root
        position = mutable.position[root.name]
        for operator in chosen.dying:
            mutable.remove(operator.name)
        for name, operator in draft.folds.items():
            mutable.add_folded(operator, draft.tensors[name], folded(mutable, operator, draft.tensors[name]))
        produced = {tensor for operator in draft.operators for tensor in operator.outputs}
        for operator in draft.operators:
            mutable.tensors[operator.outputs[0]] = draft.tensors[operator.outputs[0]]
            if operator.outputs[0] == chosen.result:
                operator = replace(operator, outputs=root.outputs)
            mutable.add(operator, position)
        if chosen.result not in produced:
            mutable.redirect(root.outputs[0], chosen.result)
        gone = tuple(op.name for op in chosen.dying)
        came = tuple(op.name for op in draft.operators)
        self.log.applied.append(Applied(chosen.rule, chosen.family, gone, came, chosen.before, chosen.after))
        return list(came)

    def _judged(self, rule: Rule, operator: Operator, match: Match) -> Iterator[Candidate]:
        """The match as a candidate, if it is one; the log is told why not."""
        mutable = self.mutable
        if not is_match(rule.guard, match, self.facts):
            return
        if not rule.exact and any(not self._is_real(name) for name in match.operators):
            self.log.refuse(
                rule.name, operator.name, "it is exact for real numbers only, and these are integers"
            )
            return
        if (reason := refusal(rule.guard, match, self.facts)) is not None:
            self.log.refuse(rule.name, operator.name, reason)
            return
        draft = Draft(mutable, operator, match)
        try:
            result = _built(draft, rule.replacement, operator.kind, match.rest)
        except ReplacementError as error:
            self.log.refuse(rule.name, operator.name, str(error))
            return
        built = draft.tensor(result)
        wanted = mutable.tensors[operator.outputs[0]]
        if (built.shape, built.dtype) != (wanted.shape, wanted.dtype):
            self.log.refuse(
                rule.name,
                operator.name,
                f"the result would be {built.dtype} {list(built.shape)}, "
                f"not {wanted.dtype} {list(wanted.shape)}",
            )
            return
        candidate = self._priced(rule.name, rule.family, operator, match.operators, draft, result)
        if candidate.gain > (0, 0, 0, 0):
            yield candidate
        elif candidate.gain.flops < 0:
            self.log.refuse(rule.name, operator.name, f"it would take {-candidate.gain.flops} FLOPs more")

    def _reordered(self, operator: Operator, chain: Chain) -> Iterator[Candidate]:
        """The same operands, met in a cheaper order."""
        if not self._is_real(operator.name):
            return
        draft = Draft(self.mutable, operator, Match(rest=chain.leaves))
        result = draft.combine(operator.kind, chain.leaves)
        candidate = self._priced(SMALLER_FIRST, "associative", operator, chain.operators, draft, result)
        built = draft.tensor(result)
        wanted = self.mutable.tensors[operator.outputs[0]]
        if candidate.gain[:2] > (0, 0) and built.shape == wanted.shape:
            yield candidate

    def _priced(
        self, rule: str, family: str, root: Operator, matched: Sequence[str], draft: Draft, result: str
    ) -> Candidate:
        dying = self._dying(root, matched, draft, result)
        before = sum(flops(self.mutable.call(op)) for op in dying)
        after = sum(flops(draft.call(op)) for op in draft.operators)
        gain = Gain(
            before - after,
            len(dying) - len(draft.operators),
            _reads(dying) - _reads(draft.operators),
            sum(HARDNESS.get(op.kind, 0) for op in dying)
            - sum(HARDNESS.get(op.kind, 0) for op in draft.operators),
        )
        return Candidate(rule, family, root, draft, result, dying, before, after, gain)

    def _dying(
        self, root: Operator, matched: Sequence[str], draft: Draft, result: str
    ) -> tuple[Operator, ...]:
        """Operators that nothing needs once the root's result comes from the draft."""
        mutable = self.mutable
        kept = {tensor for operator in draft.operators for tensor in operator.inputs} | {result}
        dying = {root.name: root}
        waiting = [mutable.operators[name] for name in dict.fromkeys(matched) if name != root.name]
        changed = True
        while changed:
            changed = False
            for operator in tuple(waiting):
                tensor = operator.outputs[0]
                if (
                    tensor not in kept
                    and tensor not in mutable.outputs
                    and mutable.readers.get(tensor, {}).keys() <= dying.keys()
                ):
                    dying[operator.name] = operator
                    waiting.remove(operator)
                    changed = True
        return tuple(dying.values())

    def _is_real(self, name: str) -> bool:
        operator = self.mutable.operators[name]
        tensors = [*operator.inputs[:2], *operator.outputs]
        kinds = [self.mutable.tensors[tensor].dtype.startswith(REAL) for tensor in tensors if tensor]
        if operator.kind != "Where":
            return kinds[-1] or kinds[0]
        return kinds[1]

    def _kind(self, tensor: str) -> str:
        maker = self.mutable.maker(tensor)
        if maker:
            return maker.kind
        if tensor in self.mutable.constants:
            return "number"
        return ""

    def _near(self, chosen: Candidate, came: Sequence[str], reach: int) -> Iterable[str]:
        """Operators at which a pattern may newly match: those that came, and what reads near them."""
        mutable = self.mutable
        names = dict.fromkeys(came)
        leaves = {tensor for operator in chosen.dying for tensor in operator.inputs if tensor}
        edge = [
            chosen.root.outputs[0],
            chosen.result,
            *leaves,
            *(t for name in came for t in mutable.operators[name].outputs),
        ]
        edge = [
            t
            for t in edge
            if t not in mutable.constants and (t not in leaves or len(mutable.readers.get(t, {})) <= FEW)
        ]
        for _ in range(reach + 1):
            readers = [
                name for tensor in edge for name in mutable.readers.get(tensor, {}) if name not in names
            ]
            names.update(dict.fromkeys(readers))
            edge = [tensor for name in dict.fromkeys(readers) for tensor in mutable.operators[name].outputs]
        return names


def subgraphs(mutable: MutableGraph, kinds: frozenset[str]) -> list[list[str]]:
    """Operators of some kinds, in parts that are joined by tensors; all others cut the graph."""
    parts: list[list[str]] = []
    seen: set[str] = set()
    for start in mutable.operators:
        if start in seen or mutable.operators[start].kind not in kinds:
            continue
        part = []
        todo = [start]
        seen.add(start)
        while todo:
            operator = mutable.operators[todo.pop()]
            part.append(operator.name)
            near = [mutable.makers[t] for t in operator.inputs if t in mutable.makers]
            near += [name for t in operator.outputs for name in mutable.readers.get(t, {})]
            for name in near:
                if name not in seen and mutable.operators[name].kind in kinds:
                    seen.add(name)
                    todo.append(name)
        parts.append(part)
    return parts


def kinds_of(rules: Iterable[Rule]) -> frozenset[str]:
    """Kinds of operator that patterns are made of."""
    return frozenset(
        term.kind for rule in rules for term in subterms(rule.pattern) if isinstance(term, Apply)
    )


def _built(draft: Draft, replacement: Term, kind: str, rest: Sequence[str]) -> str:
    """The tensor that a replacement makes, joined with what is left of the root's chain."""
    if not rest:
        return draft.build(replacement)
    if isinstance(replacement, Apply) and replacement.kind == kind:
        leaves = flattened(replacement)
    else:
        leaves = (replacement,)
    return draft.combine(kind, [*(draft.build(leaf) for leaf in leaves), *rest])


def _reads(operators: Iterable[Operator]) -> int:
    produced = {tensor for operator in operators for tensor in operator.outputs}
    return len({tensor for operator in operators for tensor in operator.inputs if tensor} - produced)
