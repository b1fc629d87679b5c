"""`torch.compile(model, backend="lfopt")`: graphs that Dynamo captures run as generated code, forward only.

Those that cannot run eager, with a warning that says why. Found by PyTorch through the entry point group
`torch_dynamo_backends`.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from threading import Lock
from typing import Annotated, Any

import torch
from onnx import ModelProto
from torch import Tensor, fx
from torch.multiprocessing.reductions import StorageWeakRef

from codegen.elements import ELEMENT
from codegen.runtime import Compiled
from codegen.target import TARGET
from lfopt.app.compiled import CPU, check_options, chip_of, compile_graph
from lfopt.app.options import CPU_HELP, ElementOption, TargetOption, ThreadsOption, TuneOption
from lfopt.app.pipeline import load_network
from lfopt.app.pytorch import EagerFallback
from lfopt.app.pytorch.export import BOUND, captured, check_installed
from lfopt.app.pytorch.program import CapturedWeights, Program
from lfopt.app.pytorch.tensors import type_of
from lfopt.ir import Hardware, InvalidConfig, LfoptError, UnsupportedModel
from lfopt.ir.names import one_line

PROGRAMS = 32  # of one graph: for shapes, numbers and weights; with more, it runs eager
LABEL = "torch_graph"


@dataclass(frozen=True)
class Options:
    """`options=` of torch.compile, as those of `lfopt.compile`."""

    threads: ThreadsOption
    target: TargetOption = TARGET
    hardware: Annotated[Hardware, CPU_HELP] = CPU
    element: ElementOption = ELEMENT
    tune: TuneOption = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """What is given; threads are PyTorch's where they are not. Raises InvalidConfig."""
        if unknown := [name for name in given if name not in cls.__dataclass_fields__]:
            raise InvalidConfig(
                f"options: found {unknown[0]!r}; accepted: {', '.join(cls.__dataclass_fields__)}"
            )
        options = cls(
            **{"threads": torch.get_num_threads(), **given, "hardware": chip_of(given.get("hardware", CPU))}
        )
        check_options(options.target, options.threads, options.element)
        return options

    def compiled(self, proto: ModelProto) -> Compiled:
        """An ONNX model, compiled or found compiled. Raises as `lfopt.compile`."""
        graph = load_network(proto, None, "default")
        compiled, _ = compile_graph(
            graph,
            threads=self.threads,
            target=self.target,
            hardware=self.hardware,
            element=self.element,
            label=LABEL,
            tune=self.tune,
        )
        return compiled


def backend(
    module: fx.GraphModule,
    examples: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What runs in place of a graph of Dynamo's.

    Warns with EagerFallback, once for each reason, where that is the graph itself. Raises InvalidConfig for
    options that nobody knows, and where torch.onnx cannot be used.
    """
    check_installed()
    if mode is not None:
        raise InvalidConfig(
            f"mode: found {mode!r}; accepted: none; options={{...}} takes "
            f"{', '.join(Options.__dataclass_fields__)}"
        )
    how = Options.of(options or {})
    why = _unfit(module, examples)
    if why is not None:
        say(why)
        return module.forward
    return Region(module, how.compiled)


@cache
def say(why: str) -> None:
    """Warn that something runs eager; the same is said once."""
    warnings.warn(f"torch.compile, backend lfopt: a graph runs eager: {why}", EagerFallback, stacklevel=3)


class Region:
    """A graph of Dynamo's, compiled for the shapes, numbers and weights that it is called with."""

    def __init__(self, module: fx.GraphModule, make: Callable[[ModelProto], Compiled]) -> None:
        """`make`: compiles an ONNX model."""
        self.module = module
        self._make = make
        inputs = module.graph.find_nodes(op="placeholder")
        # of each input: whether it becomes a constant
        self._constant = tuple(_is_weight(node) for node in inputs)
        self._own = [*module.parameters(), *module.buffers()]
        self._programs: dict[object, Program] = {}
        self._programs_compiled = 0
        self._eager = False
        self._lock = Lock()

    def __call__(self, *args: Any) -> Any:
        """The graph's outputs."""
        program = None if self._eager else self._program(args)
        if program is None:
            return self.module(*args)
        return tuple(
            program(
                [
                    arg
                    for arg, constant in zip(args, self._constant, strict=True)
                    if isinstance(arg, Tensor) and not constant
                ]
            )
        )

    def _program(self, args: Sequence[Any]) -> Program | None:
        """The program for these arguments; None, and a word of why, where there is none."""
        key = tuple(
            id(arg) if constant else arg.shape if isinstance(arg, Tensor) else arg
            for arg, constant in zip(args, self._constant, strict=True)
        )
        held = [*(arg for arg, constant in zip(args, self._constant, strict=True) if constant), *self._own]
        program = self._programs.get(key)
        if program is not None and program.weights.unchanged(held):
            return program
        with self._lock:
            program = self._programs.get(key)
            if program is not None and program.weights.unchanged(held):
                return program
            try:
                if self._programs_compiled == PROGRAMS:
                    raise UnsupportedModel(
                        f"it was compiled {PROGRAMS} times, for other shapes, numbers or weights"
                    )
                self._programs_compiled += 1
                self._programs[key] = self._compiled(args, CapturedWeights(held))
            except LfoptError as error:
                self._eager = True
                say(one_line(str(error).removeprefix(f"{LABEL}: ")))
                return None
            return self._programs[key]

    def _compiled(self, args: Sequence[Any], weights: CapturedWeights) -> Program:
        constants = {
            k: arg
            for k, (arg, constant) in enumerate(zip(args, self._constant, strict=True))
            if constant or not isinstance(arg, Tensor)
        }
        with torch.inference_mode(mode=False), torch.no_grad():
            module = with_constants(self.module, constants)
            examples = tuple(
                torch.zeros(arg.shape, dtype=arg.dtype) for k, arg in enumerate(args) if k not in constants
            )
        return Program.of(captured(module, examples, {}, LABEL), weights, LABEL, self._make)


def _is_weight(node: fx.Node) -> bool:
    """Whether an input is a parameter or a buffer of a module: Dynamo marks those whose memory stays."""
    return bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))


def with_constants(module: fx.GraphModule, constants: Mapping[int, Any]) -> fx.GraphModule:
    """The graph with some inputs, by position, as constants: tensors as buffers, numbers as they are."""
    graph = fx.Graph()
    copies = dict[fx.Node, fx.Node]()
    buffers = dict[str, Any]()
    for k, node in enumerate(module.graph.find_nodes(op="placeholder")):
        value = constants.get(k)
        if isinstance(value, Tensor):
            buffers[f"{BOUND}{node.name}"] = value.clone() if value.is_inference() else value.detach()
            copies[node] = graph.create_node("get_attr", f"{BOUND}{node.name}")
        elif k in constants:
            copies[node] = graph.call_function(operator.pos, (value,))
    graph.output(graph.graph_copy(module.graph, copies))
    targets = {
        str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")
    } - buffers.keys()
    return fx.GraphModule({**{name: attrgetter(name)(module) for name in targets}, **buffers}, graph)


def _unfit(module: fx.GraphModule, examples: Sequence[Any]) -> str | None:
    """Why generated code cannot run a graph, whatever its shapes are; None where no reason is known."""
    inputs = [
        node.meta.get("example_value", value)
        for node, value in zip(module.graph.find_nodes(op="placeholder"), examples, strict=True)
    ]
    for value in filter(torch.is_tensor, inputs):
        if value.device.type != "cpu":
            return f"found a tensor on {value.device}; accepted: cpu"
        if value.layout != torch.strided or value.is_quantized or value.is_nested:
            return f"found a tensor that is not dense, {type_of(value)}; accepted: dense ones"
    outputs = module.graph.output_node().args[0]
    nodes = outputs if isinstance(outputs, list | tuple) else (outputs,)
    results = [
        value
        for node in nodes
        if isinstance(node, fx.Node) and isinstance(value := node.meta.get("example_value"), Tensor)
    ]
    if len(results) != len(nodes) or not results:
        return "found an output that is no tensor; accepted: tensors"
    if any(value.requires_grad for value in results):
        return (
            "found an output that needs gradients; accepted: forward passes alone, under torch.no_grad() "
            "or torch.inference_mode()"
        )
    given, written = (
        {StorageWeakRef(value.untyped_storage()) for value in of if isinstance(value, Tensor)}
        for of in (inputs, results)
    )
    if len(given | written) < len(given) + len(results):
        return (
            "found an output that shares memory with an input or another output; accepted: outputs of "
            "their own"
        )
    return None
