"""Results of the functions of `lfopt` that are more than data of `lfopt.ir`, each with a `repr` of a line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lfopt.app.commands.options import check_figure
from lfopt.app.explain import Explanation, as_data
from lfopt.app.files import path_of
from lfopt.app.pipeline import check_folder
from lfopt.app.plans import write_files
from lfopt.ir import FusionScheme, Graph, Plan
from lfopt.ir.names import plural
from lfopt.ops import Dataflow
from search.result import Result


@dataclass(frozen=True, eq=False, repr=False)
class Planned:
    """A plan and the network that it is for.

    In a notebook it shows the network, with the groups of the plan in colours.
    """

    plan: Plan
    graph: Graph
    result: Result | None = None  # of the search that found the plan; None: it was read or given
    # whether the plan was recounted before it was given back; False: the time limit came before, or it was
    # read or given (`lfopt.check` recounts it)
    recounted: bool = False

    @property
    def scheme(self) -> FusionScheme:
        """Which operators run together, in an executable order."""
        return FusionScheme(tuple(group.nodes for group in self.plan.groups))

    def save(self, folder: str | os.PathLike[str]) -> Planned:
        """Write plan.json and simplified.onnx into a folder; gives the plan that refers to them.

        The folder is made where it is missing. Raises InvalidConfig for a folder that cannot be one,
        CannotWrite.
        """
        path = path_of(folder, "folder")
        check_folder(path, "folder")
        return replace(self, plan=write_files(self.plan, self.graph, path))

    def __repr__(self) -> str:
        return f"Planned({self.plan!r})"

    def _repr_html_(self) -> str:
        from lfopt.app.report.picture import summary  # noqa: PLC0415  (only notebooks draw)

        return summary(self.plan, self.graph)


@dataclass(frozen=True, eq=False, repr=False)
class Explained:
    """Whether operators fit the buffer as one group: bytes by tensor, and the cheapest repairing cut."""

    explanation: Explanation  # by number: groups are masks of the operators of `flow`
    flow: Dataflow

    @property
    def fits(self) -> bool:
        """Whether the group runs whole from the buffer."""
        return self.explanation.need.fits

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the group, those that were added to connect it included."""
        return self.flow.names(self.explanation.group)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The groups of the cheapest cut; the group itself where it fits."""
        best = self.explanation.repair
        if best:
            return tuple(map(self.flow.names, best.groups))
        return (self.operators,)

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """All of it by name, as `lfopt explain --json` writes it."""
        return as_data(self.explanation, self.flow)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Draw the group, its links in the colours of their scores, into a .svg or .png.

        Raises InvalidConfig, CannotWrite.
        """
        from lfopt.app.report.blamed import write_figure  # noqa: PLC0415  (it brings matplotlib)

        write_figure(check_figure(path_of(file, "file"), "file"), self.explanation, self.flow, "group")

    def __repr__(self) -> str:
        need = self.explanation.need
        what = plural(len(self.operators), "operator")
        if need.never:
            return f"Explained({what}: {need.never})"
        used = f"{need.bytes:,} of {need.available:,} B of buffer in mode {need.mode}"
        return f"Explained({what}: {used}" + (
            ")" if need.fits else f"; the cheapest cut makes {plural(len(self.groups), 'group')})"
        )
