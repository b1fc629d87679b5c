"""The activations of the zoo: what each does to one value, and the operators that exporters write for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf, pi, sqrt
from typing import Any

import numpy as np

PRELU_SLOPE = 0.25  # He et al., "Delving deep into rectifiers", ICCV 2015
LEAKY_SLOPE = 0.1  # of the YOLO networks: Redmon et al., "You only look once", CVPR 2016

# Wanted standard deviation before an activation; 1 before others. SiLU and hard swish bend near zero, and
# there an error of the estimate grows from layer to layer; at 4, it shrinks. Mish, which the zoo shifts off
# zero, needs less. ReLU6 needs 3 to be cut off at 6 now and then.
STD_BEFORE: dict[str | None, float] = {"relu6": 3.0, "silu": 4.0, "mish": 2.0, "hard_swish": 4.0}

# Activation that is one operator -> the operator and its attributes. ReLU6 and PReLU have operands too: see
# `Net.act`.
OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "relu6": ("Clip", {}),
    "prelu": ("PRelu", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": LEAKY_SLOPE}),
    "sigmoid": ("Sigmoid", {}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "hard_swish": ("HardSwish", {}),
}


@dataclass(frozen=True, slots=True)
class ActivationOperator:
    """One operator of an activation that is written as several."""

    name: str  # of its output; the last piece has the name of the activation
    operator: str
    operands: tuple[str | float, ...]  # "x", the name of an earlier piece, or a constant


# Activation that is several operators, which is how exporters write what ONNX lacks, or lacked when they were
# made.
PIECES: dict[str, tuple[ActivationOperator, ...]] = {
    "silu": (
        ActivationOperator("sigmoid", "Sigmoid", ("x",)),
        ActivationOperator("silu", "Mul", ("x", "sigmoid")),
    ),
    # Misra, "Mish: a self regularized non-monotonic activation function", BMVC 2020
    "mish": (
        ActivationOperator("softplus", "Softplus", ("x",)),
        ActivationOperator("tanh", "Tanh", ("softplus",)),
        ActivationOperator("mish", "Mul", ("x", "tanh")),
    ),
    # Hendrycks and Gimpel, "Gaussian error linear units (GELUs)", 2016: the form with tanh
    "gelu": (
        ActivationOperator("half", "Mul", ("x", 0.5)),
        ActivationOperator("cube", "Pow", ("x", 3.0)),
        ActivationOperator("bent", "Mul", ("cube", 0.044715)),
        ActivationOperator("sum", "Add", ("x", "bent")),
        ActivationOperator("scaled", "Mul", ("sum", sqrt(2 / pi))),
        ActivationOperator("tanh", "Tanh", ("scaled",)),
        ActivationOperator("gate", "Add", ("tanh", 1.0)),
        ActivationOperator("gelu", "Mul", ("half", "gate")),
    ),
    # The form that the paper defines, with the error function
    "gelu_erf": (
        ActivationOperator("scaled", "Div", ("x", sqrt(2))),
        ActivationOperator("erf", "Erf", ("scaled",)),
        ActivationOperator("gate", "Add", ("erf", 1.0)),
        ActivationOperator("half", "Mul", (0.5, "gate")),
        ActivationOperator("gelu_erf", "Mul", ("x", "half")),
    ),
}


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _hard_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(x / 6 + 0.5, 0, 1)


# What an operator of a piece computes.
_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "Div": np.divide,
    "Erf": np.vectorize(erf, otypes=[float]),
    "Mul": np.multiply,
    "Pow": np.power,
    "Sigmoid": _sigmoid,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Tanh": np.tanh,
}


def pieces_of(kind: str, x: np.ndarray) -> dict[str, np.ndarray]:
    """The output of each piece of an activation, by name, each in the shape of x.

    >>> {name: round(float(y), 3) for name, y in pieces_of("mish", np.array(1.0)).items()}
    {'softplus': 1.313, 'tanh': 0.865, 'mish': 0.865}
    """
    outputs: dict[str | float, np.ndarray] = {"x": x}
    for piece in PIECES[kind]:
        outputs[piece.name] = _ARITHMETIC[piece.operator](
            *(outputs.get(operand, operand) for operand in piece.operands)
        )
    return {piece.name: outputs[piece.name] for piece in PIECES[kind]}


def _last_piece(kind: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: pieces_of(kind, x)[kind]


# Activation -> the function of one value.
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "prelu": lambda x: np.where(x < 0, PRELU_SLOPE * x, x),
    "leaky_relu": lambda x: np.where(x < 0, LEAKY_SLOPE * x, x),
    "sigmoid": _sigmoid,
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda x: x * _hard_sigmoid(x),
    **{kind: _last_piece(kind) for kind in PIECES},
}
