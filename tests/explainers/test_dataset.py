"""`lfopt dataset`: groups are legal, labels the checker's, splits do not leak, finished shards stay."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from explainers.checker import Checker
from explainers.dataset import HELD_OUT, Dataset, Shard, family, make, splits
from explainers.graph import GroupGraphs
from explainers.sampling import BETAS, gated, quotas, sample, shares, strata, structure_hashes
from explainers.scheme_rule import SchemeRule
from lfopt.app.commands.dataset import LABELLED_FOR, dataflow, drawer
from lfopt.app.commands.dataset import dataset as command
from lfopt.fusion import legal
from lfopt.ir import FusionScheme, Hardware, InvalidConfig, InvalidModel
from lfopt.ops import bits
from lfopt.planning import GroupCosts
from lfopt.planning.modes.brr import BrrMode
from lfopt.zoo.cells import NAMES

NETWORKS = ("zoo:squeezenet1_1", "zoo:mobilenet_v3_small", "zoo:fsrcnn")


@pytest.fixture(scope="module")
def dataset_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "set"
    command(*NETWORKS, out_dir=folder, groups=120, jobs=1, zoo=False)
    return folder


@pytest.fixture(scope="module", params=["lbdf", "brr"])
def read(request, dataset_folder) -> Dataset:
    return Dataset.read(dataset_folder, request.param, dataflow)


def _copy(folder: Path, to: Path) -> Path:
    for path in folder.rglob("*.*"):
        (to / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
        (to / path.relative_to(folder)).write_bytes(path.read_bytes())
    return to


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- what is in it -------------------------------------------------------------------------------------------


def banded(costs: GroupCosts, mask: int) -> bool:
    mode = costs.modes["brr"]
    assert isinstance(mode, BrrMode)
    return mode.cheapest(mask, costs.hardware.buffer_bytes) is not None


def test_labels_are_those_of_the_exact_checker_on_objects_of_its_own(read):
    for n, shard in enumerate(read.shards):
        flow = dataflow(read.networks[n].source)
        for beta in BETAS:
            costs = GroupCosts(flow, Hardware(beta), scheme=read.scheme, epilogue=False)
            for mask, need in zip(read.masks(n), shard.need.tolist(), strict=True):
                valid = costs.groups.line_need(mask) < beta if read.scheme == "lbdf" else banded(costs, mask)
                assert valid == (need < beta), flow.names(mask)


def test_every_group_may_stand_in_a_scheme(read):
    for n in range(len(read.shards)):
        flow, masks = read.flow(n), read.masks(n)
        assert len(set(masks)) == len(masks)
        for mask in masks:
            alone = [1 << i for i in range(len(flow)) if not mask >> i & 1]
            verdict = legal(flow.graph, FusionScheme(tuple(flow.names(group) for group in (mask, *alone))))
            assert verdict.legal, verdict.reasons


def test_each_border_has_groups_on_either_side_and_single_operators_are_few(read):
    for n, shard in enumerate(read.shards):
        counts = np.bincount(strata(shard.need), minlength=len(BETAS) + 2)
        if read.networks[n].operators > 50:
            assert counts[: len(BETAS) + 1].min() > 0
        singles = sum(mask & (mask - 1) == 0 for mask in read.masks(n))
        assert singles <= max(len(shard) // 20, 1)


def test_graphs_are_those_of_single_groups_in_the_order_asked_for(read):
    some = [5, 3, len(read) - 1]
    for group, graph in zip(some, read.graphs(some), strict=True):
        n = int(read.network[group])
        mask = read.masks(n)[group - int((read.network < n).sum())]
        query = read.question(group, BETAS[0])
        assert (query.mask, query.buffer_bytes) == (mask, BETAS[0])
        for alone in (query.graph, SchemeRule(read.flow(n), read.chip(n), read.scheme).groups.graph(mask)):
            assert (graph.operators, graph.unit, graph.never) == (alone.operators, alone.unit, alone.never)
            assert np.array_equal(graph.features, alone.features)
            assert np.array_equal(graph.links, alone.links)
        assert graph.operators == tuple(bits(mask))


def test_a_group_says_where_it_comes_from_and_its_draw_gives_it_again(read):
    group = len(read) - 1
    origin = read.provenance(group)
    flow = dataflow(origin["source"])
    costs = GroupCosts(flow, Hardware(BETAS[-1]), scheme=origin["scheme"], epilogue=False)
    beta = BETAS[origin["seed"][-1] % len(BETAS)]
    met = drawer(costs)(origin["seed"], lambda mask: costs.least_need(mask)[1] < beta)
    assert tuple(origin["nodes"]) in {flow.names(mask) for mask in met}
    assert origin["family"] == "FSRCNN"


def test_networks_with_squeeze_and_excite_are_left_out_of_brr(dataset_folder):
    assert [gated(dataflow(name)) for name in NETWORKS] == [False, True, False]
    assert gated(dataflow("zoo:efficientnet_b0"))
    brr = json.loads((dataset_folder / "dataset.json").read_text())["schemes"]["brr"]
    assert brr["left_out"] == ["mobilenet_v3_small"]
    assert [entry["network"]["name"] for entry in brr["networks"]] == ["squeezenet1_1", "fsrcnn"]


def test_networks_drawn_at_random_are_labelled_for_chips_of_their_own(tmp_path):
    command(out_dir=tmp_path / "set", scheme="resident", groups=150, drawn=2, jobs=1, zoo=False)
    read = Dataset.read(tmp_path / "set", "resident", dataflow)
    assert (
        {network.name.partition("@")[0] for network in read.networks}
        == set(NAMES)
        == {*read.families.tolist()}
    )
    assert {(read.chip(n).element_bytes, read.chip(n).channel_align) for n in range(len(read.shards))} == {
        (2, 1),
        (1, 16),
    }
    for n, shard in enumerate(read.shards):
        costs = GroupCosts(dataflow(read.networks[n].source), read.chip(n), scheme="resident", epilogue=False)
        assert [costs.modes["resident"].need(mask) for mask in read.masks(n)] == shard.need.tolist()


@pytest.mark.parametrize(("scheme", "networks"), [("strips", NETWORKS[:2]), ("gated", NETWORKS[1:2])])
def test_labels_of_a_mode_that_only_scheme_all_has_are_its_prices(tmp_path, monkeypatch, scheme, networks):
    monkeypatch.setattr("explainers.sampling._patience", lambda operators: 80)
    command(*NETWORKS[:2], out_dir=tmp_path / "set", scheme=scheme, groups=60, jobs=1, zoo=False)
    read = Dataset.read(tmp_path / "set", scheme, dataflow)
    assert [network.source for network in read.networks] == [*networks]
    runs = 0
    for n, shard in enumerate(read.shards):
        costs = GroupCosts.of(
            dataflow(read.networks[n].source).graph, LABELLED_FOR, scheme="all", epilogue=False
        )
        assert len(costs.dataflow) == len(read.flow(n)) < read.networks[n].operators
        for mask, need in zip(read.masks(n), shard.need.tolist(), strict=True):
            prices = [costs.modes[scheme].price(mask, beta, costs.groups.once(mask).total) for beta in BETAS]
            assert [price is not None for price in prices] == [need < beta for beta in BETAS]
            runs += need < BETAS[-1]
    assert runs > 5


def test_quotas_and_families():
    assert sum(quotas([("A", 100), ("A", 900), ("B", 50)], 700)) == 700
    assert quotas([("A", 4)], 700) == [5]
    assert sum(shares([3, 0, 9, 100], 50)) == 50
    assert [
        family(name) for name in (
            "efficientnet_b7", "deeplabv3_mobilenet_v3_large", "fsrcnn", "tv_fasterrcnn_r50_fpn_rpn", "own",
        )
    ] == ["EfficientNet", "DeepLab", "FSRCNN", "R-CNN", "own"]  # fmt: skip


def test_pyg_reads_the_graphs_of_a_data_set_without_lfopt(dataset_folder, tmp_path):
    folder = _copy(dataset_folder, tmp_path / "set")
    command(*NETWORKS, out_dir=folder, groups=120, jobs=1, zoo=False, scheme="brr", form="pyg")
    script = """
import sys, torch
from torch_geometric.data import InMemoryDataset
graphs = InMemoryDataset()
graphs.load("pyg/brr.pt")
torch.load("pyg/brr.pt", weights_only=True)
assert not {"lfopt", "explainers"} & {*sys.modules}
fields = {key: [graph[key] for graph in graphs] for key in graphs[0].keys()}
torch.save(fields, "fields.pt")
"""
    subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=folder,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
        timeout=120,
    )
    fields, card = (
        torch.load(folder / "fields.pt", weights_only=True),
        json.loads((folder / "pyg/brr.json").read_text()),
    )
    read = Dataset.read(folder, "brr", dataflow)
    graphs = read.graphs()
    assert {*fields} == {*card["fields"]} and len(fields["x"]) == len(graphs) == card["graphs"]
    assert all(tensor.shape[1] == len(card["columns"]) for tensor in fields["x"])
    for k, graph in list(enumerate(graphs))[::11]:
        assert np.array_equal(fields["x"][k], graph.features) and np.array_equal(
            fields["edge_index"][k], graph.links
        )
        assert (fields["unit"][k], fields["never"][k], fields["need"][k]) == (
            graph.unit,
            graph.never,
            read.needs[k],
        )
        assert fields["y"][k].tolist() == [[read.needs[k] < beta for beta in card["betas"]]]
        origin = read.provenance(k)
        network = card["networks"][int(fields["network"][k])]
        assert [network["names"][i] for i in fields["operators"][k]] == origin["nodes"]
        assert card["families"][int(fields["family"][k])] == network["family"] == origin["family"]
    assert (
        card["command"]
        == f"lfopt dataset {' '.join(NETWORKS)} --no-zoo --groups 120 --drawn 0 --seed 0 --scheme brr"
    )
    assert card["sha256"] == hashlib.sha256((folder / "pyg/brr.pt").read_bytes()).hexdigest()


def test_without_pyg_one_line_names_the_extra_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "explainers.pyg", raising=False)
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(InvalidConfig, match=r"--format pyg needs .*pip install 'lfopt\[learn\]'"):
        command(*NETWORKS, out_dir=tmp_path / "set", form="pyg", jobs=1)
    assert not (tmp_path / "set").exists()


# -- splits --------------------------------------------------------------------------------------------------


def test_no_structure_is_in_two_parts_and_nothing_is_lost(read):
    split = splits(read, "random", 3)
    together = np.concatenate((split.train, split.validation, split.test))
    assert sorted(together.tolist()) == list(range(len(read)))
    assert abs(len(split.train) - 0.8 * len(read)) <= 5 and len(split.test) > 0 and len(split.validation) > 0
    keys = [
        {(g.features.tobytes(), g.links.tobytes()) for g in read.graphs(part)}
        for part in (split.train, split.validation, split.test)
    ]
    assert not keys[0] & keys[1] and not keys[0] & keys[2] and not keys[1] & keys[2]
    assert np.array_equal(splits(read, "random", 3).test, split.test)
    assert not np.array_equal(splits(read, "random", 4).test, split.test)


def test_repeated_blocks_stay_together(dataset_folder):
    """Two files of one network: every group has a twin."""
    once = Dataset.read(dataset_folder, "lbdf", dataflow)
    twice = Dataset(once.scheme, once.networks * 2, once.shards * 2, once.sha256, once.command, once.load)
    split = splits(twice, "random", 0)
    for part in (split.train, split.validation, split.test):
        assert sorted(part[part < len(once)] + len(once)) == sorted(part[part >= len(once)])
    assert abs(len(split.train) - 1.6 * len(once)) <= 6


def test_a_split_by_family_keeps_families_and_their_twins_out_of_training(dataset_folder):
    data = Dataset.read(dataset_folder, "lbdf", dataflow)
    split = splits(data, "family", 0, held_out=("MobileNet",))
    assert set(data.families[split.test].tolist()) == {"MobileNet"}
    assert set(data.families[split.train].tolist()) == {"SqueezeNet", "FSRCNN"}
    assert not set(data.structure_hashes[split.train].tolist()) & set(
        data.structure_hashes[split.test].tolist()
    )
    with pytest.raises(
        InvalidConfig,
        match=f"held out are {', '.join(HELD_OUT)}; the data set has FSRCNN, MobileNet, SqueezeNet",
    ):
        splits(data, "family", 0)


# -- making it -----------------------------------------------------------------------------------------------


def test_a_seed_decides_everything_and_another_gives_other_groups(dataset_folder, tmp_path, capsys):
    command(*NETWORKS, out_dir=tmp_path / "again", groups=120, jobs=1, zoo=False, scheme="brr")
    command(*NETWORKS, out_dir=tmp_path / "other", groups=120, jobs=1, zoo=False, scheme="brr", seed=1)
    first, again, other = (
        Shard.read(folder / "brr/squeezenet1_1.npz")
        for folder in (dataset_folder, tmp_path / "again", tmp_path / "other")
    )
    assert (dataset_folder / "brr/squeezenet1_1.npz").read_bytes() == (
        tmp_path / "again/brr/squeezenet1_1.npz"
    ).read_bytes()
    assert len(first) == len(again) == len(other) and {first.mask(k) for k in range(9)} != {
        other.mask(k) for k in range(9)
    }
    assert "squeezenet1_1" in capsys.readouterr().out


def test_structures_come_before_their_repeats():
    flow = dataflow("zoo:resnet34")
    costs = GroupCosts(flow, LABELLED_FOR, epilogue=False)
    sampled = sample(Checker(costs, "lbdf"), drawer(costs), 100, (0,))
    assert len(np.unique(structure_hashes(GroupGraphs(flow, LABELLED_FOR), sampled.masks))) == 100


def test_finished_shards_are_kept_and_missing_or_damaged_ones_made_anew(dataset_folder, tmp_path, capsys):
    folder = _copy(dataset_folder, tmp_path / "set")
    before = _files(folder)
    kept = folder / "lbdf/fsrcnn.npz"
    os.utime(kept, ns=(1, 1))
    (folder / "brr/fsrcnn.npz").unlink()
    (folder / "lbdf/squeezenet1_1.npz").write_bytes(b"PK\3\4 no archive")
    command(*NETWORKS, out_dir=folder, groups=120, jobs=1, zoo=False)
    assert _files(folder) == before
    assert kept.stat().st_mtime_ns == 1
    assert "it is made anew" in capsys.readouterr().err


def test_a_folder_of_other_settings_is_refused_and_left_alone(lfopt, dataset_folder, tmp_path):
    folder = _copy(dataset_folder, tmp_path / "set")
    before = _files(folder)
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"seed": 1}, "seed: found 0, asked for 1"),
        ({"groups": 121}, "groups: found 120, asked for 121"),
        ({"models": NETWORKS[1:]}, "networks: they are not the same"),
    )
    for changed, said in cases:
        models = changed.pop("models", NETWORKS)
        with pytest.raises(InvalidConfig, match=said):
            command(*models, **{"out_dir": folder, "groups": 120, "jobs": 1, "zoo": False, **changed})
    done = lfopt("dataset", "-o", folder, "--no-zoo", "zoo:fsrcnn", check=False)
    assert (
        done.returncode == 2
        and "holds a data set with other settings" in done.stderr
        and done.stderr.count("\n") == 1
    )
    assert _files(folder) == before


def test_labels_that_the_checker_no_longer_gives_are_refused(dataset_folder, tmp_path):
    folder = _copy(dataset_folder, tmp_path / "set")
    path = folder / "lbdf/fsrcnn.npz"
    shard = Shard.read(path)
    shard.need[0] += 2
    with path.open("wb") as file:
        shard.save(file)
    manifest = folder / "dataset.json"
    before, after = (
        hashlib.sha256((at / "lbdf/fsrcnn.npz").read_bytes()).hexdigest() for at in (dataset_folder, folder)
    )
    manifest.write_text(manifest.read_text().replace(before, after))
    with pytest.raises(InvalidConfig, match="zoo:fsrcnn: the checker labels its groups otherwise"):
        Dataset.read(folder, "lbdf", dataflow).graphs()
    with pytest.raises(InvalidConfig, match=r"fsrcnn\.npz: has other labels than the checker gives now"):
        command(*NETWORKS, out_dir=folder, groups=120, jobs=1, zoo=False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"groups": 0}, "--groups 0"),
        ({"seed": -1}, "--seed -1"),
        ({"jobs": 0}, "--jobs 0"),
        ({"models": ()}, "accepted: at least one"),
        ({"models": ("empty",)}, "no .onnx file in that folder"),
        ({"models": ("bad.onnx",)}, "bad.onnx"),
        ({"models": ("zoo:vgg61",)}, "vgg61"),
        ({"out_dir": Path("bad.onnx")}, "found a file; accepted: a folder"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("bad.onnx").write_bytes(b"no model")
    with pytest.raises((InvalidConfig, InvalidModel), match=said.replace(".", r"\.")) as caught:
        command(*given.pop("models", ()), **{"out_dir": Path("set"), "zoo": False, **given})
    assert "\n" not in str(caught.value) and not Path("set").exists()


def test_an_unknown_scheme_and_a_missing_file_end_with_code_2(lfopt, tmp_path):
    for arguments, said in ((("--scheme", "tiled"), "tiled"), (("no.onnx",), "no.onnx: no such file")):
        done = lfopt("dataset", "-o", "set", *arguments, check=False)
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "set").exists()


def test_a_damaged_data_set_is_one_line(dataset_folder, tmp_path):
    with pytest.raises(InvalidConfig, match=r"`lfopt dataset -o .* makes a data set"):
        Dataset.read(tmp_path, "lbdf", dataflow)
    folder = _copy(dataset_folder, tmp_path / "set")
    (folder / "lbdf/fsrcnn.npz").write_bytes((folder / "brr/fsrcnn.npz").read_bytes())
    with pytest.raises(InvalidConfig, match=r"fsrcnn\.npz: its SHA-256 is"):
        Dataset.read(folder, "lbdf", dataflow)
    for text, said in (
        ("{", "not JSON"),
        ("[]", "schema: found"),
        ('{"schema": "lfopt.dataset/1"}', "accepted: 'lfopt.dataset/2'"),
        ('{"schema": "lfopt.dataset/2", "schemes": []}', "not as `lfopt dataset` writes it"),
    ):
        (folder / "dataset.json").write_text(text)
        with pytest.raises(InvalidConfig, match=said):
            Dataset.read(folder, "lbdf", dataflow)


def test_a_network_that_has_changed_is_noticed(dataset_folder):
    changed = Dataset.read(dataset_folder, "lbdf", lambda _: dataflow("zoo:fsrcnn_deconv"))
    with pytest.raises(InvalidConfig, match="is not the network that the data set was made of"):
        changed.graphs([0])


def test_without_joblib_one_line_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'lfopt\[learn\]'"):
        command(out_dir=tmp_path / "set")


def test_an_interrupt_leaves_what_is_finished_and_the_next_run_goes_on(
    dataset_folder, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "set"

    def interrupted(order, flow, drawer):
        if order.network.name == "fsrcnn":
            raise KeyboardInterrupt
        return make(order, flow, drawer)

    with monkeypatch.context() as patched:
        patched.setattr("lfopt.app.commands.dataset.make", interrupted)
        with pytest.raises(KeyboardInterrupt):
            command(*NETWORKS, out_dir=folder, groups=120, jobs=1, zoo=False)
    assert "lbdf: 2 of 3 networks are finished" in capsys.readouterr().err
    assert sorted(_files(folder)) == ["dataset.json", "lbdf/mobilenet_v3_small.npz", "lbdf/squeezenet1_1.npz"]
    with pytest.raises(InvalidConfig, match="no finished data for scheme lbdf"):
        Dataset.read(folder, "lbdf", dataflow)
    for path in folder.glob("lbdf/*"):
        os.utime(path, ns=(1, 1))
    command(*NETWORKS, out_dir=folder, groups=120, jobs=1, zoo=False)
    assert _files(folder) == _files(dataset_folder)
    assert (folder / "lbdf/squeezenet1_1.npz").stat().st_mtime_ns == 1


@pytest.mark.slow
def test_ctrl_c_reaches_all_processes_and_ends_them(tmp_path):
    """SqueezeNet is done quickly; EfficientNet-B7, in the other process, takes seconds."""
    arguments = [
        "--scheme",
        "lbdf",
        "--groups",
        "3000",
        "--jobs",
        "2",
        "--no-zoo",
        "zoo:efficientnet_b7",
        "zoo:squeezenet1_1",
    ]
    command_line = [sys.executable, "-m", "lfopt.app.cli", "dataset", "-o", str(tmp_path / "set"), *arguments]
    shard = tmp_path / "set/lbdf/squeezenet1_1.npz"
    with subprocess.Popen(
        command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        deadline = time.monotonic() + 60
        while not shard.exists() and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert (
        said.splitlines()[0] == "lbdf: 1 of 2 networks are finished; the same command goes on from there"
        and "Traceback" not in said
    )
    assert sorted(_files(tmp_path / "set")) == ["dataset.json", "lbdf/squeezenet1_1.npz"]
    assert len(Shard.read(shard)) > 100
