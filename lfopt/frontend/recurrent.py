"""RNN, GRU and LSTM as the operators of all their steps. Source: the ONNX operators of these names.

The product with the input's weights is one for all steps; each step multiplies with the weights of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto

from lfopt.frontend.builder import Builder
from lfopt.frontend.values import options
from lfopt.ir import InvalidModel, UnsupportedModel

MAX_STEPS = 1 << 10  # of a sequence, in both directions together
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULT = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
# defaults of activation_alpha and activation_beta, whose lists follow this order
ALPHA = {
    "Affine": 1.0,
    "LeakyRelu": 0.01,
    "ThresholdedRelu": 1.0,
    "ScaledTanh": 1.0,
    "HardSigmoid": 0.2,
    "Elu": 1.0,
}
BETA = {"Affine": 0.0, "ScaledTanh": 1.0, "HardSigmoid": 0.5}
ACTIVATIONS = frozenset({*ALPHA, "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"})
Activation = Callable[[str], str]


@dataclass(frozen=True)
class _Direction:
    """What one direction computes with; weights are [features, gates * hidden], gates in ONNX's order."""

    build: Builder
    kind: str
    activations: list[Activation]
    hidden: int
    state_weights: str  # [hidden, gates * hidden]
    state_bias: str  # [gates * hidden], not in the input's part already; or ""
    peepholes: list[str]  # of input, output and forget gates, [hidden]; none of anything but LSTM
    clip: float  # of what activations are given; 0: none
    before_reset: bool  # GRU multiplies with the state's weights before it resets
    coupled: bool  # the forget gate of LSTM is 1 - the input gate

    def step(self, part: str, h: str, c: str) -> tuple[str, str]:
        """State and cell, [batch, hidden], after a step. `part`: of the input, [batch, gates * hidden]."""
        return {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self.kind](part, h, c)

    def _active(self, index: int, x: str) -> str:
        if self.clip:
            limits = (np.array(bound, self.build.dtype(x)) for bound in (-self.clip, self.clip))
            x = self.build.run("Clip", x, *limits)
        return self.activations[index](x)

    def _rnn(self, part: str, h: str, c: str) -> tuple[str, str]:
        run = self.build.run
        return self._active(0, run("Add", part, run("MatMul", h, self.state_weights))), c

    def _gru(self, part: str, h: str, c: str) -> tuple[str, str]:
        build, run, size = self.build, self.build.run, 2 * self.hidden
        first, last = (
            build.slice(self.state_weights, 1, *span) for span in ((0, size), (size, 3 * self.hidden))
        )
        parts = build.slice(part, 1, 0, size), build.slice(part, 1, size, 3 * self.hidden)
        update, reset = build.split(self._active(0, run("Add", parts[0], run("MatMul", h, first))), 1, 2)
        if self.before_reset:
            product = run("MatMul", h, last)
            product = (
                run("Add", product, build.slice(self.state_bias, 0, size, 3 * self.hidden))
                if self.state_bias
                else product
            )
            inner = run("Mul", reset, product)
        else:
            inner = run("MatMul", run("Mul", reset, h), last)
        new = self._active(1, run("Add", parts[1], inner))
        return run("Add", new, run("Mul", update, run("Sub", h, new))), c

    def _lstm(self, part: str, h: str, c: str) -> tuple[str, str]:
        build, run = self.build, self.build.run
        gates = build.split(run("Add", part, run("MatMul", h, self.state_weights)), 1, 4)
        entry, out, forget, cell = gates
        if self.peepholes:
            entry, forget = (
                run("Add", gate, run("Mul", c, self.peepholes[k])) for gate, k in ((entry, 0), (forget, 2))
            )
        entry = self._active(0, entry)
        forget = run("Sub", np.ones((), build.dtype(h)), entry) if self.coupled else self._active(0, forget)
        c = run("Add", run("Mul", forget, c), run("Mul", entry, self._active(1, cell)))
        if self.peepholes:
            out = run("Add", out, run("Mul", c, self.peepholes[1]))
        return run("Mul", self._active(0, out), self.activations[2](c)), c


def recurrent(build: Builder, node: NodeProto) -> list[str]:
    """All outputs: states of all steps, the last states and (LSTM) the last cells.

    Raises UnsupportedModel.
    """
    given, told = [*node.input, *[""] * 8][:8], options(node)
    x, w, r, bias, lengths, first_h, first_c, peepholes = given
    direction, batch_first = str(told.get("direction", "forward")), bool(told.get("layout", 0))
    if direction not in DIRECTIONS:
        raise UnsupportedModel(f"direction {direction!r}; lfopt reads {', '.join(DIRECTIONS)}")
    x = build.run("Transpose", x, perm=[1, 0, 2]) if batch_first else x
    steps, batch, _ = build.shape(x)
    backwards = DIRECTIONS[direction]
    if not 0 < steps * len(backwards) <= MAX_STEPS:
        raise UnsupportedModel(
            f"{steps} steps in {len(backwards)} directions; lfopt writes out 1 to {MAX_STEPS} in all"
        )
    hidden, dtype = build.shape(r)[2], build.dtype(x)
    masks = _masks(build, lengths, steps, batch)
    states: list[list[str]] = []  # by direction, by step
    last: list[tuple[str, str]] = []
    for k, reverse in enumerate(backwards):
        one, parts = _direction(build, node.op_type, told, k, len(backwards), x, (w, r, bias, peepholes))
        h, c = (
            _first(build, name, k, (batch, hidden), dtype, batch_first=batch_first)
            for name in (first_h, first_c)
        )
        hidden_states = [""] * steps
        for t in reversed(range(steps)) if reverse else range(steps):
            new_h, new_c = one.step(parts[t], h, c)
            hidden_states[t] = new_h
            if masks:
                hidden_states[t] = build.run("Where", masks[t], new_h, np.zeros((), dtype))
                new_h = build.run("Where", masks[t], new_h, h)
                new_c = build.run("Where", masks[t], new_c, c) if new_c != c else c
            h, c = new_h, new_c
        states.append(hidden_states)
        last.append((h, c))
    axes = (2, 1) if batch_first else (1, 0)  # of directions; of Y without steps, of the last states
    asked = [bool(name) for name in [*node.output, "", "", ""][:3]]
    y = (
        build.concat(
            [
                build.unsqueeze(build.concat([build.unsqueeze(h, 0) for h in of_direction], 0), 1)
                for of_direction in states
            ],
            1,
        )
        if asked[0]
        else ""
    )
    y = build.run("Transpose", y, perm=[2, 0, 1, 3]) if y and batch_first else y
    ends = [
        build.concat([build.unsqueeze(pair[i], axes[1]) for pair in last], axes[1]) if asked[1 + i] else ""
        for i in range(2)
    ]
    return [y, *ends][: len(node.output)]


def _direction(
    build: Builder,
    kind: str,
    told: dict[str, Any],
    k: int,
    count: int,
    x: str,
    constants: tuple[str, str, str, str],
) -> tuple[_Direction, list[str]]:
    """What a direction computes with, and the parts of its input, [batch, gates * hidden] each."""
    w, r, bias, peepholes = constants
    hidden, (steps, batch, features) = build.shape(r)[2], build.shape(x)
    size, before_reset = GATES[kind] * hidden, kind == "GRU" and bool(told.get("linear_before_reset", 0))
    weights, state_weights = (build.run("Transpose", build.entry(name, 0, k), perm=[1, 0]) for name in (w, r))
    parts = build.run("MatMul", build.reshape(x, steps * batch, features), weights)
    of_state = ""
    if bias:
        of_input, of_state = build.split(build.entry(bias, 0, k), 0, 2)
        if before_reset:  # the last gate's is multiplied by what resets
            known = build.run(
                "Concat", build.slice(of_state, 0, 0, 2 * hidden), np.zeros(hidden, build.dtype(x)), axis=0
            )
        else:
            known = of_state
        parts = build.run("Add", parts, build.run("Add", of_input, known))
    names = [str(name) for name in told.get("activations", DEFAULT[kind] * count)]
    if len(names) < len(DEFAULT[kind]) * count:
        raise InvalidModel(f"{len(names)} activations; accepted: {len(DEFAULT[kind]) * count} or more")
    activations = _activations(build, names, told)[k * len(DEFAULT[kind]) :]
    through = build.split(build.entry(peepholes, 0, k), 0, 3) if peepholes else []
    clip, coupled = float(told.get("clip", 0.0)), bool(told.get("input_forget", 0))
    one = _Direction(
        build, kind, activations, hidden, state_weights, of_state, through, clip, before_reset, coupled
    )
    split = build.split(build.reshape(parts, steps, batch, size), 0, steps)
    return one, [build.reshape(part, batch, size) for part in split]


def _activations(build: Builder, names: list[str], told: dict[str, Any]) -> list[Activation]:
    """Functions by name, in the order of the lists of their parameters."""
    alphas, betas = [*told.get("activation_alpha", ())], [*told.get("activation_beta", ())]
    activations: list[Activation] = []
    for name in names:
        known = next((one for one in ACTIVATIONS if one.lower() == name.lower()), None)
        if known is None:
            raise UnsupportedModel(f"activation {name!r}; lfopt reads {', '.join(sorted(ACTIVATIONS))}")
        alpha = (alphas.pop(0) if alphas else ALPHA[known]) if known in ALPHA else None
        beta = (betas.pop(0) if betas else BETA[known]) if known in BETA else None
        activations.append(_activation(build, known, alpha, beta))
    return activations


def _activation(build: Builder, kind: str, alpha: float | None, beta: float | None) -> Activation:
    def scaled(x: str, by: float | None) -> str:
        return build.run("Mul", x, np.array(by, build.dtype(x)))

    if kind == "Affine":
        return lambda x: build.run("Add", scaled(x, alpha), np.array(beta, build.dtype(x)))
    if kind == "ScaledTanh":
        return lambda x: scaled(build.run("Tanh", scaled(x, beta)), alpha)
    attributes: dict[str, Any] = {
        name: value for name, value in (("alpha", alpha), ("beta", beta)) if value is not None
    }
    return lambda x: build.run(kind, x, **attributes)


def _first(
    build: Builder, name: str, k: int, shape: tuple[int, int], dtype: str, *, batch_first: bool
) -> str:
    """State or cell before the first step."""
    if name:
        return build.entry(name, 1 if batch_first else 0, k)
    return build.constant(build.filled(shape, 0, dtype))


def _masks(build: Builder, lengths: str, steps: int, batch: int) -> list[str]:
    """By step, which sequences of the batch, [batch, 1], have it; none if all have all."""
    known = build.known(lengths) if lengths else None
    if not lengths or (known is not None and (known >= steps).all()):
        return []
    column = build.reshape(build.cast(lengths, "int64"), batch, 1)
    return [build.run("Greater", column, np.array(t, np.int64)) for t in range(steps)]
