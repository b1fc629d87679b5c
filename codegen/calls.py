"""A schedule of a CPU's threads as C: one function for each group, which calls those that make its maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.writer import Writer
from lfopt.ir.cpu import CpuBarrier, CpuFunction, CpuGroup, CpuLoop, CpuNode


def calls(out: Writer, group: CpuGroup) -> str:
    """Print the function of a group; the C statement that runs it."""
    name = f"group_{group.id}"
    functions = {function.name: function for function in group.functions}
    with out.block(f"static void {name}(const context *m)"):
        if not functions:
            out("(void)m; /* all that it makes is there */")
        for section in group.sections:
            if section.together:
                _nodes(out, section.threads[0], functions, 0)
                continue
            for k, nodes in enumerate(section.threads):
                with out.block(f"if (m->me == {k})"):
                    _nodes(out, nodes, functions, 0)
            out("SYNC();")
    out("")
    return f"{name}(m);"


def _nodes(out: Writer, nodes: Sequence[CpuNode], functions: Mapping[str, CpuFunction], depth: int) -> None:
    for node in nodes:
        if isinstance(node, CpuLoop):
            with out.block(f"for (int i{depth} = 0; i{depth} < {node.count}; i{depth}++)"):
                _nodes(out, node.body, functions, depth + 1)
        elif isinstance(node, CpuBarrier):
            out("SYNC();")
        else:
            (first, stop), rows = node.rows, node.rows[1] - node.rows[0]
            moves = "".join(
                f" + i{k} * {by}" if by != 1 else f" + i{k}" for k, by in enumerate(node.strides) if by
            )
            if functions[node.function].makes == "map":
                out(f"{node.function}(m, 0);")
            elif node.shared:
                start = f"{first}{moves} + " if first or moves else ""
                out(
                    f"for (int r = {start}FIRST({rows}); r < {start}STOP({rows}); r++) {node.function}(m, r);"
                )
            elif rows == 1:
                out(f"{node.function}(m, {first}{moves});")
            else:
                out(f"for (int r = {first}{moves}; r < {stop}{moves}; r++) {node.function}(m, r);")
