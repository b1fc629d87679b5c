"""Certificates: what a search says of maps proves its bound without it; what is wrong proves less."""

from __future__ import annotations

import json

import numpy as np

from lfopt.ops import Dataflow
from search.cover_bound import CoverBounds
from search.cover_path import MOST_SETS, CoverBudget
from simulator.cover_proof import CoverProof
from tests.cases import few, some
from tests.search.test_cover import Enumeration, Toy, alone
from tests.strategies import random_graph

BEYOND = 1 << 40  # more bytes than any network moves


def test_claims_of_a_search_prove_its_bound_and_wrong_ones_never_more_than_an_enumeration_finds() -> None:
    exact = 0
    for seed in some(range(150)):
        rng = np.random.default_rng(seed)
        model = Toy.draw_floors(rng, Dataflow.of(random_graph(rng, int(rng.integers(2, 8)))))
        least = Enumeration(model).least()
        for sets in (MOST_SETS, 300, 30, 0):
            bounds = CoverBounds([model], CoverBudget(lambda: False, sets))
            bound = bounds.search(alone(model))
            claims = bounds.claims()
            proof = CoverProof(model, claims, lambda: False)
            assert proof.proven(bound) == bound, (seed, sets)
            assert not proof.weaker, (seed, sets)
            higher = {key: size + int(rng.integers(0, 40)) for key, size in claims.items()}
            proven = CoverProof(model, higher, lambda: False).proven(BEYOND)
            assert proven <= least, (seed, sets)
            exact += proven == least
            made_up = higher | drawn_claims(rng, model.dataflow)
            assert CoverProof(model, made_up, lambda: False).proven(BEYOND) <= least, (seed, sets)
    assert exact > few(400)


def drawn_claims(rng: np.random.Generator, flow: Dataflow) -> dict[tuple[int, int], int]:
    """Claims on any maps beside any others, some of which depend on them."""
    claims: dict[tuple[int, int], int] = {}
    maps = [m for m, producer in enumerate(flow.producer) if producer >= 0]
    for _ in range(12):
        m, other = (int(rng.choice(maps)) for _ in range(2))
        maker = flow.producer[other]
        claims[m, flow.ancestors[maker] | 1 << maker] = int(rng.integers(1, 1000))
    return claims


def test_once_it_is_late_less_is_proven() -> None:
    for seed in some(range(60)):
        rng = np.random.default_rng(seed)
        model = Toy.draw_floors(rng, Dataflow.of(random_graph(rng, int(rng.integers(2, 8)))))
        bounds = CoverBounds([model], CoverBudget(lambda: False))
        bound = bounds.search(alone(model))
        asked = 0

        def late() -> bool:
            nonlocal asked
            asked += 1
            return asked > 5

        assert CoverProof(model, bounds.claims(), late).proven(BEYOND) <= bound
        assert CoverProof(model, {}, lambda: True).proven(BEYOND) <= bound


def test_check_verifies_the_certificate_of_a_plan_and_tells_what_is_wrong_with_it(lfopt, tmp_path) -> None:
    options = "--scheme", "all", "--buffer", "64KiB", "--input-shape", "image=1,3,96,96", "--time-limit", "20"
    lfopt("search", "zoo:mobilenet_v1", *options, "--out", "plan")
    file = tmp_path / "plan" / "plan.json"
    plan = json.loads(file.read_text())
    certificate = plan["search"]["certificate"]
    claims = certificate["claims"]
    assert "verified by its certificate" in lfopt("check", "plan", "--prove").stdout
    first = claims[0] | {}
    claims[0]["map"] = "no such map"
    file.write_text(json.dumps(plan))
    done = lfopt("check", "plan", "--prove", check=False)
    assert done.returncode == 2
    assert "search.certificate: found 'no such map'" in done.stderr
    claims[0] = first | {"bytes": -1}
    file.write_text(json.dumps(plan))
    done = lfopt("check", "plan", "--prove", check=False)
    assert done.returncode == 1
    assert "wrong search.certificate" in done.stdout
    claims[0] = first
    for operators in (certificate["operators"][1:], certificate["operators"][::-1]):
        altered = plan | {"search": plan["search"] | {"certificate": certificate | {"operators": operators}}}
        file.write_text(json.dumps(altered))
        done = lfopt("check", "plan", "--prove", check=False)
        assert done.returncode == 2
        assert "search.certificate.operators: found" in done.stderr
    for claim in claims:  # they prove nothing that is not so
        claim["bytes"] = 10**12
    bound = plan["totals"]["dram_bytes"] - 1
    plan["totals"] |= {"lower_bound_bytes": bound, "gap": 1 / bound, "proof": "bound"}
    file.write_text(json.dumps(plan))
    done = lfopt("check", "plan", "--prove", "--time-limit", "2", check=False)
    assert "verified by its certificate" not in done.stdout
