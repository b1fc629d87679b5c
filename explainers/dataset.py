"""Labelled groups on disk, and their split into training, validation and test.

A folder holds `dataset.json` and, per scheme and network, one compressed archive:

    members   (operators of all groups,) unsigned: indices in the dataflow, group after group, ascending
    offsets   (groups + 1,) int64: where each group begins in `members`
    need      (groups,) int64: F_beta in bytes; 2**62 where no buffer is large enough. A group is valid at
              beta iff it is less.
    draw      (groups,) int32: the draw that first met the group; it is seeded with (seed, first 8 digits of
              the fingerprint, draw)
    names     (operators,) str: of the network, in the order of its dataflow
    settings  (): JSON: everything that the archive follows from

Features are not stored: they are made from the network.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from explainers.checker import Checker, LabelScheme, seen
from explainers.graph import GroupGraph, GroupGraphs
from explainers.sampling import BETAS, Draw, Sample, Seed, batches, parts, sample, structure_hashes
from explainers.scheme_rule import SchemeRule, ValidityQuery
from lfopt.ir import Hardware, InvalidConfig
from lfopt.ops import Dataflow, bits
from lfopt.planning import GroupCosts

SCHEMA = "lfopt.dataset/2"
MANIFEST = "dataset.json"
CHECKED = 16  # groups of a shard whose labels are computed afresh before it is used

# what labels depend on but for beta
CHIP = (
    "element_bytes",
    "weight_bytes",
    "weight_bits",
    "bias_bytes",
    "accumulator_bytes",
    "dram_row_align",
    "channel_align",
    "constant_align",
    "parameter_store_bytes",
    "parameter_channels",
)

By = Literal["random", "family"]
Load = Callable[[str], Dataflow]  # source of a network -> the network

# (part of a name, family) of networks; the first that fits counts
FAMILIES = (
    ("deeplab", "DeepLab"),
    ("efficientnet", "EfficientNet"),
    ("mobilenet", "MobileNet"),
    ("squeezenet", "SqueezeNet"),
    ("fsrcnn", "FSRCNN"),
    ("rcnn", "R-CNN"),
    ("ssd", "SSD"),
    ("detr", "DETR"),
    ("resnet", "ResNet"),
    ("vgg", "VGG"),
    ("s3d", "S3D"),
    ("c3d", "C3D"),
    ("densenet", "DenseNet"),
    ("shufflenet", "ShuffleNet"),
    ("regnet", "RegNet"),
    ("yolo", "YOLO"),
    ("unet", "U-Net"),
    ("segformer", "SegFormer"),
    ("swin", "Swin"),
    ("sam_", "SAM"),
    ("fastvit", "FastViT"),
    ("mamba", "Mamba"),
    ("llama", "LLaMA"),
    ("t5", "T5"),
    ("bert", "BERT"),
    ("gpt", "GPT"),
    ("vit", "ViT"),
    ("dino", "ViT"),
    ("whisper", "Whisper"),
)
HELD_OUT = ("EfficientNet", "DeepLab")  # families that a split by family keeps for the test


def family(name: str) -> str:
    """Family of a network by its name, drawn networks by their cells; other names are families of their own.

    >>> family("hf_mobilenet_v2_deeplab"), family("tv_ssd300_vgg16_nopost")
    ('DeepLab', 'SSD')
    >>> family("cells_dense@3"), family("mine_7")
    ('cells_dense', 'mine_7')
    """
    return next((label for part, label in FAMILIES if part in name.lower()), name.partition("@")[0])


def fingerprint(flow: Dataflow) -> str:
    """SHA-256, in hex, of the operators' names, kinds, shapes and row dependences; weights do not count."""
    digest = hashlib.sha256()
    for operator, call, operands, results in zip(
        flow.operators, flow.calls, flow.operands, flow.results, strict=True
    ):
        reads = [(o.map, o.input, o.reads.need, o.reads.keep) for o in operands]
        digest.update(
            repr((operator.name, operator.kind, call.shapes, call.constant, reads, results)).encode()
        )
    digest.update(repr([(m.shape, out) for m, out in zip(flow.maps, flow.is_output, strict=True)]).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class NetworkSource:
    """Network of a shard, as the manifest has it."""

    name: str
    source: str  # zoo:NAME, or the path of an ONNX file
    family: str
    operators: int
    fingerprint: str
    sha256: str | None  # of the file; None for the zoo

    @property
    def stem(self) -> str:
        """File name of its shards, without folder and ending."""
        origin = f"-{self.sha256[:8]}" if self.sha256 else ""
        return re.sub(r"[^A-Za-z0-9._-]", "_", self.name)[:80] + origin


@dataclass(frozen=True)
class ShardRequest:
    """Request for a shard; equal requests give equal shards."""

    network: NetworkSource
    scheme: LabelScheme
    groups: int  # at most
    seed: int
    hardware: Hardware  # its buffer does not count

    @property
    def settings(self) -> str:
        """All that determines the shard, as JSON; the path of a file does not."""
        hardware = {key: getattr(self.hardware, key) for key in CHIP}
        network = {
            key: value
            for key, value in asdict(self.network).items()
            if key != "source" or self.network.sha256 is None
        }
        spec = {
            "schema": SCHEMA,
            "scheme": self.scheme,
            "groups": self.groups,
            "seed": self.seed,
            "betas": BETAS,
        }
        return json.dumps({**spec, "hardware": hardware, "network": network})

    @property
    def file(self) -> str:
        """Path of the shard in the folder of the data set."""
        return f"{self.scheme}/{self.network.stem}.npz"


@dataclass(frozen=True, eq=False)
class Shard:
    """Labelled groups of one network under one scheme."""

    members: np.ndarray  # as in the module's docstring
    offsets: np.ndarray
    need: np.ndarray
    draw: np.ndarray
    names: np.ndarray
    settings: str

    def __len__(self) -> int:
        return len(self.need)

    @classmethod
    def of(cls, drawn: Sample, flow: Dataflow, settings: str) -> Shard:
        """Shard of a sample."""
        members = np.array(
            [i for mask in drawn.masks for i in bits(mask)], np.uint16 if len(flow) <= 1 << 16 else np.uint32
        )
        offsets = np.cumsum([0, *(mask.bit_count() for mask in drawn.masks)])
        return cls(
            members,
            offsets.astype(np.int64),
            drawn.needs,
            drawn.draws,
            np.array([operator.name for operator in flow.operators]),
            settings,
        )

    def operators(self, k: int) -> tuple[int, ...]:
        """Operators of a group, ascending."""
        return tuple(self.members[self.offsets[k] : self.offsets[k + 1]].tolist())

    def mask(self, k: int) -> int:
        """A group as a mask of operators."""
        return sum(1 << i for i in self.operators(k))

    def save(self, file: BinaryIO) -> None:
        """Write the shard as an .npz archive."""
        arrays = {name: getattr(self, name) for name in ("members", "offsets", "need", "draw", "names")}
        np.savez_compressed(file, allow_pickle=False, **arrays, settings=np.array(self.settings))

    @classmethod
    def read(cls, path: Path) -> Shard:
        """Shard of a file. Raises InvalidConfig if it is not a whole one."""
        kinds = {"members": "u", "offsets": "i", "need": "i", "draw": "i", "names": "U"}
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in kinds}
                settings = str(archive["settings"][()])
        except (OSError, ValueError, EOFError, KeyError, AttributeError, zipfile.BadZipFile) as error:
            raise InvalidConfig(f"{path}: not a shard of a data set: {str(error)[:200]}") from None
        shard = cls(**arrays, settings=settings)
        if not (
            all(array.ndim == 1 and array.dtype.kind == kinds[name] for name, array in arrays.items())
            and len(shard.offsets) == len(shard.need) + 1 == len(shard.draw) + 1
            and shard.offsets[0] == 0
            and (np.diff(shard.offsets) > 0).all()
            and shard.offsets[-1] == len(shard.members)
            and (shard.members < len(shard.names)).all()
        ):
            raise InvalidConfig(f"{path}: not a shard of a data set: its arrays do not match")
        return shard


def seeds(seed: int, network: NetworkSource) -> Seed:
    """Seed of the draws of a network, by its fingerprint: two exports of one network get different groups."""
    return seed, int(network.fingerprint[:8], 16)


def make(request: ShardRequest, flow: Dataflow, drawer: Callable[[GroupCosts], Draw]) -> Shard:
    """Draw and label the groups of one network; `flow`: as in its file, before `seen`."""
    checker = Checker.of(seen(flow, request.scheme), request.hardware, request.scheme)
    drawn = sample(checker, drawer(checker.costs), request.groups, seeds(request.seed, request.network))
    return Shard.of(drawn, checker.costs.dataflow, request.settings)


def outdated(shard: Shard, checker: Checker) -> bool:
    """Whether any of up to CHECKED labels differs from the checker's now."""
    few = np.linspace(0, len(shard) - 1, min(CHECKED, len(shard))).astype(int).tolist()
    return any(checker.need(shard.mask(k)) != shard.need[k] for k in few)


# -- reading -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Numbers of groups, ascending. The graphs of a group, and groups with equal graphs, are in one part."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Dataset:
    """Groups of one scheme, numbered consecutively over all networks."""

    scheme: LabelScheme
    networks: tuple[NetworkSource, ...]
    shards: tuple[Shard, ...]  # per network
    sha256: str  # over the digests of all shards: names the data set
    command: str  # that makes it, but for the folder
    load: Load

    @classmethod
    def read(cls, folder: Path, scheme: LabelScheme, load: Load) -> Dataset:
        """A finished data set. Raises InvalidConfig if it is none, or damaged."""
        data = read_manifest(folder)
        try:
            listing = data["schemes"].get(scheme, {"finished": False, "command": ""})
            entries = [
                (NetworkSource(**entry["network"]), folder / entry["file"], str(entry["shard_sha256"]))
                for entry in listing.get("networks", ())
            ]
            finished = listing["finished"] and bool(entries)
            command = str(listing["command"])
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidConfig(f"{folder / MANIFEST}: not as `lfopt dataset` writes it: {error!r}") from None
        if not finished:
            raise InvalidConfig(
                f"{folder}: holds no finished data for scheme {scheme}; "
                f"`lfopt dataset -o {folder} --scheme {scheme}` makes it"
            )
        digest = hashlib.sha256()
        for _, path, listed in entries:
            if (digest_on_disk := _sha256(path)) != listed:
                raise InvalidConfig(
                    f"{path}: its SHA-256 is {digest_on_disk[:16]}..., {MANIFEST} says {listed[:16]}..."
                )
            digest.update(listed.encode())
        shards = tuple(Shard.read(path) for _, path, _ in entries)
        return cls(
            scheme, tuple(network for network, _, _ in entries), shards, digest.hexdigest(), command, load
        )

    def __len__(self) -> int:
        return len(self.needs)

    @cached_property
    def needs(self) -> np.ndarray:
        """(groups,) int64: F_beta in bytes."""
        return np.concatenate([shard.need for shard in self.shards])

    @cached_property
    def neediest(self) -> np.ndarray:
        """(groups,) int64: F_beta of the operator of each group that needs most by itself, in bytes."""
        neediest: list[np.ndarray] = []
        for n, shard in enumerate(self.shards):
            checker = self.checker(n)
            alone = np.array([checker.need(1 << i) for i in range(len(self.flow(n)))], np.int64)
            neediest.append(np.maximum.reduceat(alone[shard.members], shard.offsets[:-1]))
        return np.concatenate(neediest)

    @cached_property
    def network(self) -> np.ndarray:
        """(groups,) int64: number of the network."""
        return np.repeat(np.arange(len(self.shards)), [len(shard) for shard in self.shards])

    @cached_property
    def families(self) -> np.ndarray:
        """(groups,) str: family of the network."""
        return np.array([network.family for network in self.networks])[self.network]

    @cached_property
    def structure_hashes(self) -> np.ndarray:
        """(groups,) uint64: equal for groups with equal graphs."""
        return np.concatenate(
            [
                structure_hashes(GroupGraphs(self.flow(n), self.chip(n)), self.masks(n))
                for n in range(len(self.shards))
            ]
        )

    @cached_property
    def _rules(self) -> dict[int, SchemeRule]:
        return {}

    @cached_property
    def _flows(self) -> dict[int, Dataflow]:
        return {}

    def flow(self, network: int) -> Dataflow:
        """A network as the scheme sees it.

        Raises InvalidConfig if it, or the checker, has changed since its groups were labelled.
        """
        if network not in self._flows:
            entry = self.networks[network]
            flow = self.load(entry.source)
            if fingerprint(flow) != entry.fingerprint:
                raise InvalidConfig(
                    f"{entry.source}: is not the network that the data set was made of; "
                    "make the data set anew"
                )
            flow = seen(flow, self.scheme)
            if outdated(self.shards[network], Checker.of(flow, self.chip(network), self.scheme)):
                raise InvalidConfig(
                    f"{entry.source}: the checker labels its groups otherwise than the data set does; "
                    "make the data set anew"
                )
            self._flows[network] = flow
        return self._flows[network]

    def checker(self, network: int) -> Checker:
        """Checker that labels the groups of a network."""
        return Checker.of(self.flow(network), self.chip(network), self.scheme)

    def chip(self, network: int) -> Hardware:
        """Chip that the groups of a network were labelled for; its buffer does not count.

        Raises InvalidConfig if its shard names none.
        """
        try:
            return Hardware(BETAS[-1], **json.loads(self.shards[network].settings)["hardware"])
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidConfig(
                f"shard of {self.networks[network].name}: settings: hardware: "
                f"not as `lfopt dataset` writes it: {error!r}"
            ) from None

    def masks(self, network: int) -> list[int]:
        """The groups of one network, as masks of its operators."""
        shard = self.shards[network]
        return [shard.mask(k) for k in range(len(shard))]

    def provenance(self, group: int) -> dict[str, Any]:
        """Network, source, seed and nodes of one group."""
        n = int(self.network[group])
        shard = self.shards[n]
        k = group - int(np.searchsorted(self.network, n))
        nodes = [str(shard.names[i]) for i in shard.operators(k)]
        seed = (*seeds(json.loads(shard.settings)["seed"], self.networks[n]), int(shard.draw[k]))
        return {**asdict(self.networks[n]), "scheme": self.scheme, "seed": seed, "nodes": nodes}

    def graphs(self, groups: Sequence[int] | np.ndarray | None = None) -> list[GroupGraph]:
        """Graphs of groups, in the order given, as the network reads them.

        `groups`: (groups,) int64, their numbers in the data set; None: all.
        """
        wanted = np.arange(len(self)) if groups is None else np.asarray(groups, np.int64)
        graphs: dict[int, GroupGraph] = {}
        for n in np.unique(self.network[wanted]).tolist():
            start = int(np.searchsorted(self.network, n))
            shard = self.shards[n]
            numbers = np.unique(wanted[self.network[wanted] == n])
            masks = [shard.mask(k) for k in (numbers - start).tolist()]
            for first, batch in batches(self.rules(n).groups, masks):
                for group, (features, links), unit, never in zip(
                    numbers[first:].tolist(), parts(batch), batch.units, batch.never, strict=False
                ):
                    graphs[group] = GroupGraph(
                        shard.operators(group - start), features, links, float(unit), bool(never)
                    )
        return [graphs[group] for group in wanted.tolist()]

    def question(self, group: int, buffer_bytes: float) -> ValidityQuery:
        """The question whether a group runs from a buffer of this size in bytes."""
        n = int(self.network[group])
        return ValidityQuery(
            self.rules(n), self.shards[n].mask(group - int(np.searchsorted(self.network, n))), buffer_bytes
        )

    def rules(self, network: int) -> SchemeRule:
        """The rule of the scheme on one network."""
        if network not in self._rules:
            self._rules[network] = SchemeRule(self.flow(network), self.chip(network), self.scheme)
        return self._rules[network]


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror or error}") from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Contents of dataset.json in a folder. Raises InvalidConfig if there is none, or of another schema."""
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(
            f"{path}: {error.strerror or error}; `lfopt dataset -o {folder}` makes a data set"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not JSON: {str(error)[:200]}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise InvalidConfig(
            f"{path}: schema: found {data.get('schema') if isinstance(data, dict) else data!r}; "
            f"accepted: {SCHEMA!r}"
        )
    return data


def splits(dataset: Dataset, by: By, seed: int, held_out: Sequence[str] = HELD_OUT) -> Split:
    """Training, validation and test parts: 80, 10, 10 % of the groups at random, or families held out.

    By family, the test part has the held-out families, and the others are 90 and 10 %; groups outside that
    equal one inside are in no part. Groups with equal graphs stay together. Raises InvalidConfig where the
    held-out families are none or all of the data set.
    """
    keys = np.unique(dataset.structure_hashes, return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(keys.max(initial=-1) + 1)
    rank = order[keys]  # of each group: place of its structure in a random order
    if by == "random":
        return Split(*_cut(rank, np.ones(len(rank), bool), (0.8, 0.9)))
    outside = np.isin(dataset.families, held_out)
    if not outside.any() or outside.all():
        families = ", ".join(sorted({*dataset.families.tolist()}))
        raise InvalidConfig(
            f"split by family, scheme {dataset.scheme}: held out are {', '.join(held_out)}; "
            f"the data set has {families}"
        )
    train, validation, _ = _cut(rank, ~outside & ~np.isin(keys, keys[outside]), (0.9, 1.0))
    return Split(train, validation, np.flatnonzero(outside))


def _cut(rank: np.ndarray, among: np.ndarray, shares: tuple[float, float]) -> list[np.ndarray]:
    """Numbers (part,) int64 of the groups in three parts, cut at cumulative shares; structures stay whole.

    `rank`: (groups,) int64, order of their structures; `among`: (groups,) bool, the groups to part.
    """
    counts = np.bincount(rank[among], minlength=rank.max(initial=-1) + 1)
    before = np.cumsum(counts) - counts
    part = np.searchsorted(np.array(shares) * counts.sum(), before[rank], side="right")
    return [np.flatnonzero(among & (part == k)) for k in range(3)]
