"""lfopt dataset: fusion groups with labels, to learn validity from.

Raises InvalidConfig for options that are not accepted.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter
from rich.markup import escape

from explainers.checker import Checker, LabelScheme, seen
from explainers.dataset import (
    CHIP,
    MANIFEST,
    SCHEMA,
    Dataset,
    NetworkSource,
    Shard,
    ShardRequest,
    family,
    fingerprint,
    make,
    outdated,
    read_manifest,
)
from explainers.sampling import BETAS, Draw, Fits, Seed, gated, quotas
from lfopt.app.answers.networks import DatasetAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.batch.engine import Workers, needed, processes, values
from lfopt.app.config import SearchConfig
from lfopt.app.deadline import ReportProgress
from lfopt.app.files import sha256, write_bytes, write_text, write_with
from lfopt.app.options import JOBS, JobsOption, SeedOption
from lfopt.app.pipeline import ZOO, load_network
from lfopt.app.screen import err, out, progress_line, spread
from lfopt.ir import Hardware, InvalidConfig
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts
from lfopt.zoo import cells, names
from search.partition import Partitions, Rng

LABELLED_FOR = Hardware(BETAS[-1])  # 2 bytes an element, as in the paper; the buffer does not count
CHIPS = (  # for networks drawn at random, by their seeds
    LABELLED_FOR,
    replace(LABELLED_FOR, element_bytes=1, bias_bytes=4, channel_align=16, dram_row_align=16),
    replace(LABELLED_FOR, element_bytes=4),
    replace(LABELLED_FOR, element_bytes=1),
    replace(LABELLED_FOR, channel_align=8),
)
IN_PAPER: tuple[LabelScheme, ...] = ("lbdf", "brr")
# schemes for networks without squeeze-and-excite gates, or for those with
GATES: dict[LabelScheme, bool] = {"brr": False, "gated": True}


def dataset(
    *models: str,
    out_dir: Annotated[Path, Parameter(name=["--out", "-o"])],
    scheme: LabelScheme | Literal["both"] = "both",
    groups: int = 11_000,
    drawn: int = 0,
    seed: SeedOption = SearchConfig.seed,
    jobs: JobsOption = JOBS,
    zoo: bool = True,
    form: Annotated[Literal["npz", "pyg"], Parameter(name="--format")] = "npz",
) -> None:
    """Draw fusion groups of many networks and label them, to learn validity from.

    Example: lfopt dataset networks/*.onnx --groups 2000 --out data/groups

    Groups are drawn as a random search does, and labelled by the exact checker at five buffer sizes. Writes
    one file per scheme and network, and dataset.json. What is finished is kept when the command is run again.

    Parameters
    ----------
    models
        ONNX files, folders of them, or zoo:NAME, besides the zoo.
    out_dir
        Folder of the data set.
    scheme
        How groups run: lbdf, brr (networks with squeeze-and-excite are left out), or both of them, one after
        the other; resident; or in a mode that only scheme all has: strips, sliced, gated (networks without
        squeeze-and-excite are left out).
    groups
        Groups of each scheme; each gives five samples, one per buffer size.
    drawn
        Networks drawn at random that are added of each family of cells (zoo:cells_dense@0 and on), on chips
        of several element widths and alignments.
    zoo
        Whether the whole zoo is in.
    form
        npz: groups and labels, which `lfopt train` reads; pyg: besides, the graphs with all features as
        PyTorch Geometric's InMemoryDataset reads them, pyg/SCHEME.pt with a card, pyg/SCHEME.json.
    """
    if groups < 1 or min(seed, drawn) < 0 or jobs < 1:
        raise InvalidConfig(
            f"--groups {groups}, --seed {seed}, --drawn {drawn}, --jobs {jobs}: accepted: at least 1 group, "
            "1 job, and 0 of the others"
        )
    if out_dir.exists() and not out_dir.is_dir():
        raise InvalidConfig(f"--out {out_dir}: found a file; accepted: a folder")
    workers = processes(jobs, "lfopt dataset", "learn")
    # torch is optional, and slow to import
    pyg = needed("explainers.pyg", "lfopt dataset --format pyg", "learn") if form == "pyg" else None
    schemes = IN_PAPER if scheme == "both" else (scheme,)
    with progress_line() as report:
        candidates = _networks(_sources(models, drawn, whole_zoo=zoo), report)
        job = _Labelling(
            out_dir,
            groups,
            seed,
            tuple(network for network, _ in candidates),
            _command(models, groups, drawn, seed, whole_zoo=zoo),
        )
        job.start()
        for name in schemes:
            kept = [network for network, gates in candidates if GATES.get(name, gates) == gates]
            job.run(
                name,
                kept,
                [network.name for network, gates in candidates if network not in kept],
                report,
                workers,
            )
            if pyg:
                report(f"{name}: graphs for PyTorch Geometric", 1.0)
                job.export(name, pyg)
    for name in schemes:
        _print(name, job.entries(name))
    answer(DatasetAnswer(str(out_dir), {name: job.entries(name) for name in schemes}))


def _command(models: Iterable[str], groups: int, drawn: int, seed: int, *, whole_zoo: bool) -> str:
    """What makes such groups again, but for the folder and the scheme."""
    return shlex.join(
        [
            "lfopt",
            "dataset",
            *models,
            *(() if whole_zoo else ["--no-zoo"]),
            "--groups",
            str(groups),
            "--drawn",
            str(drawn),
            "--seed",
            str(seed),
        ]
    )


def dataflow(source: str) -> Dataflow:
    """The network of a shard."""
    return Dataflow.of(load_network(source, {}, "default", weights=False))


def drawer(costs: GroupCosts) -> Draw:
    """Draws of a random search: groups of a random scheme, cut at random until each fits or is single."""
    partitions = Partitions(costs)

    def draw(seed: Seed, fits: Fits) -> Iterator[int]:
        rng = Rng(seed)
        fused = 64 + rng.below(193)  # of 256 links: a quarter up to all
        waiting = partitions.decode((rng.bytes(len(partitions.links)) < fused).tobytes())
        while waiting:
            group = waiting.pop()
            yield group
            if group & (group - 1) and not fits(group):
                waiting.extend(partitions.cut(group, rng))

    return draw


def chip(network: NetworkSource) -> Hardware:
    """What groups of a network are labelled for."""
    family, _, seed = network.name.partition("@")
    if network.sha256 is None and family in cells.NAMES:
        return CHIPS[int(seed) % len(CHIPS)]
    return LABELLED_FOR


def _sources(models: Iterable[str], drawn: int, *, whole_zoo: bool) -> list[str]:
    """Networks by name or path, each once."""
    sources = [ZOO + name for name in names()] if whole_zoo else []
    sources += [f"{ZOO}{name}@{seed}" for seed in range(drawn) for name in cells.NAMES]
    for model in models:
        folder = Path(model)
        if model.startswith(ZOO) or folder.is_file():
            sources.append(model)
            continue
        if not folder.is_dir():
            raise InvalidConfig(f"{model}: no such file or folder")
        files = sorted(str(path) for path in folder.glob("*.onnx"))
        if not files:
            raise InvalidConfig(f"{model}: no .onnx file in that folder")
        sources += files
    if not sources:
        raise InvalidConfig("--no-zoo: and no networks; accepted: at least one")
    return list(dict.fromkeys(sources))


def _networks(sources: Sequence[str], report: ReportProgress) -> list[tuple[NetworkSource, bool]]:
    """(network, whether it has squeeze-and-excite gates) per source; files of equal content count once."""
    networks: dict[tuple[str, str | None], tuple[NetworkSource, bool]] = {}
    for k, source in enumerate(sources):
        report(f"reading {source}", k / len(sources))
        in_zoo = source.startswith(ZOO)
        name = source.removeprefix(ZOO) if in_zoo else Path(source).stem
        digest = None if in_zoo else sha256(Path(source))
        flow = dataflow(source)
        if not len(flow):
            raise InvalidConfig(f"{source}: has no operators to fuse")
        where = source if in_zoo else str(Path(source).resolve())
        networks.setdefault(
            (name, digest),
            (NetworkSource(name, where, family(name), len(flow), fingerprint(flow), digest), gated(flow)),
        )
    return list(networks.values())


def _labelled_shard(request: ShardRequest) -> Shard:
    """The labelled groups of a request; called in a process of its own."""
    return make(request, dataflow(request.network.source), drawer)


@dataclass(frozen=True)
class _Labelling:
    """A data set that is being made."""

    folder: Path
    groups: int
    seed: int
    networks: tuple[NetworkSource, ...]
    command: str  # that makes them

    @property
    def settings(self) -> dict[str, Any]:
        """What must not change between runs that share a folder."""
        networks = {network.stem: network.fingerprint for network in self.networks}
        hardware = {key: getattr(LABELLED_FOR, key) for key in CHIP}
        return {
            "groups": self.groups,
            "seed": self.seed,
            "betas": list(BETAS),
            "hardware": hardware,
            "networks": networks,
        }

    def _request(self, network: NetworkSource, scheme: LabelScheme, count: int) -> ShardRequest:
        return ShardRequest(network, scheme, count, self.seed, chip(network))

    def start(self) -> None:
        """Make the folder and its manifest. Raises InvalidConfig if it has one of other settings."""
        if not (self.folder / MANIFEST).exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write({"schema": SCHEMA, "settings": self.settings, "schemes": {}})
            return
        before = read_manifest(self.folder).get("settings", {})
        for key, value in self.settings.items():
            if (existing := before.get(key)) != value:
                if isinstance(value, int):
                    shown = f"found {existing}, asked for {value}"
                else:
                    shown = "they are not the same"
                raise InvalidConfig(
                    f"{self.folder}: holds a data set with other settings: {key}: {shown}; accepted: those, "
                    "or another folder"
                )

    def run(
        self,
        scheme: LabelScheme,
        networks: Sequence[NetworkSource],
        left_out: Sequence[str],
        report: ReportProgress,
        workers: Workers,
    ) -> None:
        """Make what is not yet there of one scheme, and list all of it in the manifest."""
        counts = quotas([(network.family, network.operators) for network in networks], self.groups)
        requests = [
            self._request(network, scheme, count)
            for network, count in zip(networks, counts, strict=True)
            if count
        ]
        entries = {request.file: entry for request in requests if (entry := self._kept(request))}
        waiting = sorted(
            (request for request in requests if request.file not in entries),
            key=lambda request: -request.network.operators,
        )
        total = sum(request.network.operators for request in requests)
        labelled = total - sum(request.network.operators for request in waiting)

        def note(*, finished: bool) -> None:
            listed = [entries[request.file] for request in requests if request.file in entries]
            data = read_manifest(self.folder)
            command = f"{self.command} --scheme {scheme}"
            data["schemes"][scheme] = {
                "finished": finished,
                "command": command,
                "left_out": left_out,
                "networks": listed,
            }
            self._write(data)

        report(f"{scheme}: {len(entries)} of {len(requests)} networks", labelled / max(total, 1))
        try:
            for k, shard in values(_labelled_shard, waiting, workers):
                request = waiting[k]
                self._save(request, shard)
                entries[request.file] = self._entry(request, shard)
                labelled += request.network.operators
                report(f"{scheme}: {len(entries)} of {len(requests)} networks", labelled / total)
            note(finished=True)
        except KeyboardInterrupt:
            note(finished=False)
            err.print(
                f"{scheme}: {len(entries)} of {len(requests)} networks are finished; the same command goes "
                "on from there",
                highlight=False,
            )
            raise

    def _kept(self, request: ShardRequest) -> dict[str, Any] | None:
        """The entry of a shard that is there; None if it must be made.

        Raises InvalidConfig if it was made with other settings, or has other labels than the checker gives.
        """
        path = self.folder / request.file
        if not path.exists():
            return None
        try:
            shard = Shard.read(path)
        except InvalidConfig as error:
            err.print(f"note: {error}; it is made anew", style="yellow", markup=False, soft_wrap=True)
            return None
        if shard.settings != request.settings:
            raise InvalidConfig(
                f"{path}: was made with other settings; accepted: the same, or another folder"
            )
        flow = seen(dataflow(request.network.source), request.scheme)
        if outdated(shard, Checker.of(flow, request.hardware, request.scheme)):
            raise InvalidConfig(
                f"{path}: has other labels than the checker gives now; remove it, or take another folder"
            )
        return self._entry(request, shard)

    def _save(self, request: ShardRequest, shard: Shard) -> None:
        path = self.folder / request.file
        path.parent.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        shard.save(buffer)
        write_bytes(path, buffer.getvalue())

    def _entry(self, request: ShardRequest, shard: Shard) -> dict[str, Any]:
        valid = [int((shard.need < beta).sum()) for beta in BETAS]
        digest = sha256(self.folder / request.file)
        return {
            "file": request.file,
            "shard_sha256": digest,
            "groups": len(shard),
            "asked": request.groups,
            "samples": len(shard) * len(BETAS),
            "valid": valid,
            "network": asdict(request.network),
        }

    def export(self, scheme: LabelScheme, pyg: Any) -> None:
        """Write a finished scheme as PyTorch Geometric reads it."""
        data = Dataset.read(self.folder, scheme, dataflow)
        (self.folder / "pyg").mkdir(exist_ok=True)
        write_with(self.folder / f"pyg/{scheme}.pt", partial(pyg.save, data))
        card = {
            **pyg.card(data, self.entries(scheme)["command"]),
            "sha256": sha256(self.folder / f"pyg/{scheme}.pt"),
        }
        write_text(self.folder / f"pyg/{scheme}.json", json.dumps(card, indent=1) + "\n")

    def _write(self, data: dict[str, Any]) -> None:
        write_text(self.folder / MANIFEST, json.dumps(data, indent=1) + "\n")

    def entries(self, scheme: LabelScheme) -> dict[str, Any]:
        """What the manifest says of a scheme."""
        return read_manifest(self.folder)["schemes"][scheme]


def _print(scheme: str, manifest: dict[str, Any]) -> None:
    """Groups of each network, and the share that is valid at each buffer size."""
    sizes = [str(beta >> 10) for beta in BETAS]
    rows: list[tuple[str, ...]] = []
    entries = manifest["networks"]
    for entry in entries:
        network = entry["network"]
        count = entry["groups"]
        shares = [f"{100 * valid / max(count, 1):.0f}" for valid in entry["valid"]]
        rows.append((network["name"], network["family"], f"{count:,}", f"{entry['samples']:,}", *shares))
    count, samples = (sum(entry[key] for entry in entries) for key in ("groups", "samples"))
    valid = np.sum([entry["valid"] for entry in entries], axis=0)
    rows.append(
        (
            "total",
            "",
            f"{count:,}",
            f"{samples:,}",
            *(f"{100 * share:.0f}" for share in valid / max(count, 1)),
        )
    )
    out.print(f"[bold]{scheme}: % of groups that are valid, by KiB of buffer[/]")
    out.print(
        spread(("network", "family", "groups", "samples", *sizes), rows, stretch=(0, 1), bold={len(entries)})
    )
    if manifest["left_out"]:
        out.print(
            "[dim]left out for their squeeze-and-excite gates, or the lack of them:[/] "
            f"{escape(', '.join(manifest['left_out']))}"
        )
    if short := [
        f"{entry['network']['name']} {entry['asked'] - entry['groups']}"
        for entry in entries
        if entry["groups"] < entry["asked"]
    ]:
        out.print(f"[dim]fewer groups turned up than were asked for:[/] {escape(', '.join(short))}")
    out.print()
