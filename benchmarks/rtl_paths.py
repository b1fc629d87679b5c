"""Longest path of a netlist that Yosys mapped to Xilinx cells, in ps: delays of cells, without wires.

Delays are those that Yosys' library has for its mapper (`specify` blocks of xilinx/cells_sim.v): Artix-7's,
as Project X-Ray measured them. Cells that only UltraScale+ has get those of the cell before them: DSP48E2
those of DSP48E1, RAMB*E2 those of RAMB36E1, RAM32M16 and RAM64M8 those of RAM32M and RAM64M. Inputs of a LUT
are swapped, as a router does. Artix-7 is of an older and slower process than UltraScale+. Wires, fan-out and
clock skew are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Pin = tuple[str, int]  # port, bit
ARC = re.compile(r"\(\s*(\w+)(?:\[(\d+)\])?\s*[=*]>\s*(\w+)(?:\[(\d+)\])?\s*\)\s*=\s*([\d\s+]+);")
CLOCKED = re.compile(r"\((?:pos|neg)edge\s+\w+\s*=>\s*\(\s*(\w+)(?:\[[\d:]+\])?\s*:[^=]*\)\s*\)\s*=\s*(\d+);")
SETUP = re.compile(r"\$setup\(\s*(\w+)(?:\[[\d:]+\])?\s*,[^;]*?,\s*(\d+)\s*\)\s*;")
BEFORE = {
    "RAM32M16": "RAM32M",
    "RAM64M8": "RAM64M",
    "RAMB36E2": "RAMB36E1",
    "RAMB18E2": "RAMB36E1",
    "RAMB18E1": "RAMB36E1",
}
# Ports that DSP48E2 has as DSP48E1 has; registers that a path from a port meets, the first first; delays are
# those of cells_sim.v.
DSP_SETUP = {
    "A": (("AREG", 254), ("MREG", 1416), ("PREG", 2739)),
    "B": (("BREG", 324), ("MREG", 1285), ("PREG", 2608)),
    "C": (("CREG", 168), ("PREG", 1244)),
    "D": (("DREG", 248), ("ADREG", 1195), ("MREG", 2310), ("PREG", 3635)),
    "PCIN": (("PREG", 1025),),
}  # fmt: skip
# to P where no register is met; to PCOUT 148 more
DSP_THROUGH = {"A": 2823, "B": 2690, "C": 1325, "D": 3717, "PCIN": 1107}
# from these registers to P, where PREG is none
DSP_OUT = (("MREG", 1671), ("AREG", 2952), ("BREG", 2813), ("CREG", 1687))
DSP_REGISTERED, DSP_CASCADE, DSP_PRE_ADDER = 329, 148, 983  # ps
RESETS = ("CLR", "PRE")  # they are let go of once
RAMB_OUT, RAMB_REGISTERED, RAMB_DATA, RAMB_ADDRESS = 2454, 882, 737, 566  # ps


@dataclass
class Delays:
    """Of one type of cell, in ps."""

    through: dict[tuple[Pin | str, Pin | str], int] = field(default_factory=dict)  # pins, or whole ports
    out: dict[str, int] = field(default_factory=dict)  # from the clock
    setup: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Route:
    """The longest path."""

    ps: int
    start: str  # cell or port
    end: str
    cells: tuple[str, ...]  # types, from start to end


def library(text: str) -> dict[str, Delays]:
    """The delays of every module of a Verilog library that has a `specify` block."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    cells: dict[str, Delays] = {}
    for name, body in re.findall(
        r"^module\s+\\?(\S+?)\s*[(\n ](.*?)^endmodule", text, re.DOTALL | re.MULTILINE
    ):
        delays = Delays()
        for a, i, y, j, ps in ARC.findall(body):
            delays.through[(a, int(i)) if i else a, (y, int(j)) if j else y] = sum(map(int, ps.split("+")))
        for port, ps in CLOCKED.findall(body):
            delays.out[port] = max(delays.out.get(port, 0), int(ps))
        for port, ps in SETUP.findall(body):
            delays.setup[port] = max(delays.setup.get(port, 0), int(ps))
        if delays.through or delays.out:
            cells[name] = delays
    return cells


class Netlist:
    """A flat module: who drives each bit, and when it is there."""

    def __init__(self, module: Mapping[str, Any], delays: Mapping[str, Delays]) -> None:
        """`module`: as Yosys' write_json has it. Bits that nothing in it drives are there at once."""
        self.delays = delays
        self.names = names(module)
        self.starts: dict[int, tuple[int, str]] = {}  # bit -> ps, where
        # bit -> what it comes from: bit, ps, type of cell
        self.arcs: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        self.ends: list[tuple[int, int, str]] = []  # bit, setup in ps, cell
        self.where: dict[str, str] = {}  # cell -> the name of a register in it
        self.unknown: set[str] = set()
        self._inner = 0  # number of the last bit that is a cell's own
        for name, port in module["ports"].items():
            if port["direction"] == "output":
                self.ends += [(bit, 0, name) for bit in bits(port["bits"])]
        for name, cell in module["cells"].items():
            self._add(name, cell)
        self.arrival, self.before = self._arrivals()

    def _add(self, name: str, cell: Mapping[str, Any]) -> None:
        kind: str = cell["type"]
        if kind in ("BUFG", "VCC", "GND", "$scopeinfo"):
            return
        delays = dsp(cell["parameters"]) if kind == "DSP48E2" else self.delays.get(BEFORE.get(kind, kind))
        if delays is None:
            self.unknown.add(kind)
            return
        ins = {port: b for port, b in cell["connections"].items() if cell["port_directions"][port] == "input"}
        outs = {
            port: b for port, b in cell["connections"].items() if cell["port_directions"][port] == "output"
        }
        source = cell.get("attributes", {}).get("src", name).split("|")[0].rsplit("/", 1)[-1]  # file and line
        self.where[name] = next(
            (self.names[bit] for connected in outs.values() for bit in bits(connected) if bit in self.names),
            source,
        )
        block = kind.startswith("RAMB")
        for port, connected in ins.items():
            setup = (
                RAMB_DATA
                if block and port.startswith("DIN")
                else RAMB_ADDRESS
                if block and port.startswith("ADDR")
                else delays.setup.get(port)
            )
            if setup is not None:
                self.ends += [(bit, setup, name) for bit in bits(connected)]
        for port, connected in outs.items():
            registered = (
                cell["parameters"].get("DOB_REG" if port.startswith("DOUTB") else "DOA_REG", "0")
                if block
                else "0"
            )
            ps = (RAMB_REGISTERED if int(registered, 2) else RAMB_OUT) if block else delays.out.get(port)
            if ps is not None:
                self.starts.update((bit, (ps, self.where[name])) for bit in bits(connected))
        for (source, target), ps in delays.through.items():
            if source not in RESETS:
                self._connect(pins(ins, source), pins(outs, target), ps, kind)

    def _connect(self, sources: list[int], targets: list[int], ps: int, kind: str) -> None:
        if len(sources) > 1 and len(targets) > 1:  # by a bit of their own, lest there be one arc for each two
            self._inner -= 1
            self._connect(sources, [self._inner], ps, kind)
            self._connect([self._inner], targets, 0, "")
        else:
            for j in targets:
                self.arcs[j] += [(i, ps, kind) for i in sources]

    def longest(self) -> Route:
        """The longest path of all, to a register or to where it is used outside."""
        ps, bit, end = max(
            ((self.arrival.get(bit, 0) + setup, bit, name) for bit, setup, name in self.ends),
            default=(0, 0, ""),
        )
        last = max(self.arrival, key=self.arrival.__getitem__, default=0)
        if self.arrival.get(last, 0) > ps:
            ps, bit, end = self.arrival[last], last, ""
        return self._route(ps, bit, end)

    def ends_by_cell(self) -> dict[str, int]:
        """When what a register takes is there, set-up included: ps."""
        ends: dict[str, int] = {}
        for bit, setup, name in self.ends:
            ends[name] = max(ends.get(name, 0), self.arrival.get(bit, 0) + setup)
        return ends

    def route(self, end: str) -> Route:
        """The longest path to a cell."""
        ps, bit = max(
            (self.arrival.get(bit, 0) + setup, bit) for bit, setup, name in self.ends if name == end
        )
        return self._route(ps, bit, end)

    def _route(self, ps: int, bit: int, end: str) -> Route:
        cells: list[str] = []
        while bit in self.before:
            bit, kind = self.before[bit]
            cells += [kind] * bool(kind)
        start = self.starts.get(bit, (0, self.names.get(bit, "a constant")))[1]
        return Route(ps, start, self.where.get(end, end), tuple(reversed(cells)))

    def _arrivals(self) -> tuple[dict[int, int], dict[int, tuple[int, str]]]:
        arrival: dict[int, int] = {}
        before: dict[int, tuple[int, str]] = {}
        for bit in self._in_order():
            ps = self.starts.get(bit, (0, ""))[0]
            for source, delay, kind in self._swapped(self.arcs.get(bit, []), arrival):
                if arrival.get(source, 0) + delay > ps:
                    ps = arrival.get(source, 0) + delay
                    before[bit] = (source, kind)
            arrival[bit] = ps
        return arrival, before

    @staticmethod
    def _swapped(arcs: list[tuple[int, int, str]], arrival: Mapping[int, int]) -> list[tuple[int, int, str]]:
        """Arcs of a LUT, inputs swapped as a router does: the later a bit, the faster its input."""
        if len(arcs) < 2 or not arcs[0][2].startswith("LUT"):
            return arcs
        sources = sorted((source for source, _, _ in arcs), key=lambda bit: -arrival.get(bit, 0))
        return list(zip(sources, sorted(ps for _, ps, _ in arcs), (kind for _, _, kind in arcs), strict=True))

    def _in_order(self) -> Iterator[int]:
        """Bits, those that others follow from first."""
        state: dict[int, int] = {}
        for root in [*self.arcs, *(bit for bit, _, _ in self.ends)]:
            stack = [root]
            while stack:
                bit = stack[-1]
                if state.get(bit, 0) == 0:
                    state[bit] = 1
                    stack += [source for source, _, _ in self.arcs.get(bit, ()) if state.get(source, 0) == 0]
                else:
                    stack.pop()
                    if state[bit] == 1:
                        state[bit] = 2
                        yield bit


def dsp(parameters: Mapping[str, str]) -> Delays:
    """DSP48E2, by the registers that are in use."""
    used = {
        name
        for name in ("AREG", "BREG", "CREG", "DREG", "ADREG", "MREG", "PREG")
        if int(parameters.get(name, "0"), 2)
    }
    adds = "AD" in parameters.get("AMULTSEL", "A")
    delays = Delays()
    for port, registers in DSP_SETUP.items():
        met = next((ps for name, ps in registers if name in used), None)
        extra = DSP_PRE_ADDER if port == "A" and adds and "AREG" not in used else 0
        if met is not None:
            delays.setup[port] = met + extra
        else:
            delays.through[port, "P"] = DSP_THROUGH[port] + extra
            delays.through[port, "PCOUT"] = DSP_THROUGH[port] + extra + DSP_CASCADE
    if "PREG" in used:
        ps = DSP_REGISTERED
    else:
        hidden = {"AREG", "BREG"} if "MREG" in used else set[str]()
        ps = max((delay for name, delay in DSP_OUT if name in used - hidden), default=0)
    if ps:
        delays.out = {"P": ps, "PCOUT": ps + DSP_CASCADE}
    return delays


def names(module: Mapping[str, Any]) -> dict[int, str]:
    """The name of each bit that has one in the source."""
    shortest: dict[int, str] = {}
    for name, net in module["netnames"].items():
        if not net.get("hide_name"):
            for bit in bits(net["bits"]):
                if bit not in shortest or len(name) < len(shortest[bit]):
                    shortest[bit] = name
    return shortest


def bits(connected: list[Any]) -> Iterator[int]:
    """Those that are no constants."""
    return (bit for bit in connected if isinstance(bit, int))


def pins(ports: Mapping[str, list[Any]], which: Pin | str) -> list[int]:
    if isinstance(which, str):
        return list(bits(ports.get(which, [])))
    port, k = which
    return list(bits(ports.get(port, [])[k : k + 1]))
