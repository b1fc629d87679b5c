"""The order in which everything is tried: clean-up, normal forms, composites, moves, algebra; again and again, until a round changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from lfopt.ir import Graph
from lfopt.rewrite.associative import ASSOCIATIVE
from lfopt.rewrite.board import Board
from lfopt.rewrite.cleanup import drop_dead, drop_expands, drop_idle, fold_constants, join_casts, merge_equal
from lfopt.rewrite.commutative import COMMUTATIVE
from lfopt.rewrite.composite import COMPOSITES, NORMAL_FORMS
from lfopt.rewrite.distributive import DISTRIBUTIVE
from lfopt.rewrite.engine import Engine, Index, kinds_of, subgraphs
from lfopt.rewrite.facts import Facts
from lfopt.rewrite.fold import fold_affine, fold_norms
from lfopt.rewrite.inverse import INVERSE
from lfopt.rewrite.log import Log, Rewriting
from lfopt.rewrite.movement import shorten_moves
from lfopt.rewrite.rule import Rule

Pass = Callable[[Board, Log], int]

CLEAN_UP: tuple[Pass, ...] = (fold_constants, drop_idle, join_casts, drop_expands, merge_equal, drop_dead, fold_affine)
ALGEBRA: tuple[Rule, ...] = (*ASSOCIATIVE, *DISTRIBUTIVE, *COMMUTATIVE, *INVERSE)
ALL_RULES: tuple[Rule, ...] = (*ALGEBRA, *NORMAL_FORMS, *COMPOSITES)
ROUNDS = 10  # of a fixpoint that two or three reach

_NORMAL = Index.of((*NORMAL_FORMS, *(rule for rule in INVERSE if rule.family == "identity")))
_COMPOSITES = Index.of(COMPOSITES)
_ALGEBRA = Index.of(ALGEBRA, reorders=True)
_ALGEBRAIC_KINDS = kinds_of(ALGEBRA)


def rewrite_all(graph: Graph) -> Rewriting:
    """Everything that lfopt knows, to a fixpoint."""
    log = Log()
    board = Board(fold_norms(graph, log))
    engine = Engine(board, Facts(board), log)
    settled = -1  # version of the board at which algebra found nothing more
    for _ in range(ROUNDS):
        before = board.version
        for each in CLEAN_UP:
            each(board, log)
        engine.settle(_NORMAL, board.operators)
        engine.settle(_COMPOSITES, board.operators)
        shorten_moves(board, log)
        if board.version != settled:
            for part in subgraphs(board, _ALGEBRAIC_KINDS):
                engine.settle(_ALGEBRA, part)
            settled = board.version
        if board.version == before:
            break
    return finished(board, log)


def rewrite_with(graph: Graph, rules: tuple[Rule, ...]) -> Rewriting:
    """Some rules alone, greedily, to a fixpoint."""
    log, board = Log(), Board(graph)
    Engine(board, Facts(board), log).settle(Index.of(rules), board.operators)
    board.drop_dead()
    return finished(board, log)


def finished(board: Board, log: Log) -> Rewriting:
    """The result; of the refusals those that still stand."""
    graph = board.finish()
    left = {operator.name for operator in graph.operators}
    return Rewriting(graph, tuple(log.applied), tuple(refusal for refusal in log.refused.values() if refusal.operator in left))
