"""lfopt quantize: a network of int8 maps and weights, by ONNX Runtime's static quantisation."""

from __future__ import annotations

import contextlib
import difflib
import logging
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from lfopt.app.answers.files import FileAnswer
from lfopt.app.answers.networks import QuantizeAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.arrays import read_arrays
from lfopt.app.commands.options import InputShapes
from lfopt.app.pipeline import load_network
from lfopt.app.random_values import random_inputs
from lfopt.app.screen import mib, note, out, shown, table
from lfopt.app.sizes import parse_shapes
from lfopt.frontend import load, save, to_model
from lfopt.ir import Graph, InvalidConfig, InvalidModel, MissingValues, Operator, UnsupportedModel
from lfopt.ir.names import one_line
from lfopt.ops import Call, spec
from lfopt.ops.arithmetic import FLOAT, TABLE, arithmetic
from lfopt.ops.elementwise import REAL
from lfopt.rewrite.board import Board
from lfopt.rewrite.flattened import flattened_as_convolutions
from lfopt.rewrite.per_channel import as_convolutions
from lfopt.rewrite.shuffle import shuffles_as_gathers

SAMPLES = 16  # random inputs, where nothing is given
UNARY = frozenset({*REAL, "Abs", "Clip", "Neg", "Relu", "Round"})  # one table each
Samples = Sequence[Mapping[str, np.ndarray]]


def quantize(
    model: str,
    /,
    *,
    out_file: Annotated[Path, Parameter(name=["--out", "-o"])],
    calibration: Path | None = None,
    samples: int | None = None,
    seed: int = 0,
    unsigned: bool = False,
    input_shape: InputShapes = (),
    end: Annotated[tuple[str, ...], Parameter(consume_multiple=False, negative="")] = (),
) -> None:
    """Write an int8 copy of a network in QDQ form: weights per channel, maps per tensor, scales from calibration data.

    Example: lfopt quantize zoo:mobilenet_v2 --calibration images.npz --out mobilenet_v2_int8.onnx

    Parameters
    ----------
    model
        ONNX file with weights, zoo:NAME, or a folder that `lfopt search` has written.
    out_file
        The ONNX file to write.
    calibration
        NumPy archive (.npz) of inputs by name, samples along the first axis. Without it, scales come from random inputs.
    samples
        Samples to calibrate with: of the archive (all, if not given), or random ones (16).
    seed
        Seed of the random inputs.
    unsigned
        Maps as uint8 instead of int8.
    input_shape
        Shapes of inputs, as name=1,3,224,224, and sizes of named dimensions, as batch=1 height=320.
    end
        Tensor at which the network ends, in place of its outputs; may be repeated. What comes after is left to the host.
    """
    if seed < 0 or (samples is not None and samples < 1) or not out_file.name:
        raise InvalidConfig(
            f"--seed {seed}, --samples {samples}, --out {str(out_file)!r}: accepted: a seed of at least 0, at least 1 sample, a file name"
        )
    runtime = _onnxruntime()
    graph = _without_identities(load_network(model, parse_shapes(input_shape), "default"))
    note(graph)
    _refuse(graph, model)
    graph = _ended(graph, end) if end else graph
    graph = flattened_as_convolutions(shuffles_as_gathers(as_convolutions(graph)))
    rng = np.random.default_rng(seed)
    given = [random_inputs(graph, rng) for _ in range(samples or SAMPLES)] if calibration is None else _read(calibration, graph, samples)
    made = _quantized(runtime, graph, given, unsigned=unsigned, label=model)
    save(made, out_file)
    before, counts = _weight_bytes(graph), _report(made, out_file, weight_bytes=_weight_bytes(graph))
    answer(QuantizeAnswer(FileAnswer.of(out_file), counts, before, _weight_bytes(made), calibration is not None))
    if calibration is None:
        out.print(
            f"[yellow]scales come from {len(given)} random inputs (seed {seed}), not from data: the network's accuracy is lost[/]", soft_wrap=True
        )
        out.print("[yellow]--calibration x.npz gives real ones[/]")


def _onnxruntime() -> Any:
    try:
        import onnxruntime.quantization  # noqa: PLC0415  (optional, and slow to import)
    except ImportError as error:
        raise InvalidConfig(f"lfopt quantize needs ONNX Runtime ({error}): pip install 'lfopt[quantize]'") from None
    return onnxruntime


def _refuse(graph: Graph, label: str) -> None:
    if absent := [name for name, value in graph.constants.items() if value is None]:
        raise MissingValues(f"{label}: constant {absent[0]!r} has no values, and scales come from running the network; give a model with weights")
    if any(tensor.quantization is not None for tensor in graph.tensors.values()):
        raise InvalidModel(f"{label}: is quantised already")


def _ended(graph: Graph, names: Sequence[str]) -> Graph:
    """The network up to some of its tensors. Raises InvalidConfig."""
    makers = {name: operator for operator in graph.operators for name in operator.outputs if name}
    for name in names:
        if name not in makers:
            close = difflib.get_close_matches(name, makers, 1)
            hint = f"; did you mean {one_line(close[0])}?" if close else ""
            raise InvalidConfig(f"--end {one_line(name)}: no operator of the network makes it{hint}")
    board = Board(replace(graph, outputs=tuple(dict.fromkeys(names))))
    board.drop_dead()
    inputs = tuple(name for name in graph.inputs if board.readers.get(name))
    return replace(board.finish(), inputs=inputs).without_unused()


def _without_identities(graph: Graph) -> Graph:
    """Without Identity: ONNX Runtime would see another map, of another scale, behind it."""
    same: dict[str, str] = {}
    operators: list[Operator] = []
    for operator in graph.operators:
        operator = replace(operator, inputs=tuple(same.get(name, name) for name in operator.inputs))
        if operator.kind == "Identity" and not operator.domain and operator.outputs[0] not in graph.outputs:
            same[operator.outputs[0]] = operator.inputs[0]
        else:
            operators.append(operator)
    return replace(graph, operators=tuple(operators), tensors={name: t for name, t in graph.tensors.items() if name not in same})


def _read(path: Path, graph: Graph, count: int | None) -> Samples:
    """Samples of an archive: [samples * n, ...] for an input [n, ...]."""
    found = read_arrays(path)
    if not isinstance(found, dict):
        raise InvalidConfig(f"{path}: found one array; accepted: an .npz archive with one array per input")
    parts: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        wanted = f"accepted: [samples * {tensor.shape[0] if tensor.shape else 1}, {', '.join(map(str, tensor.shape[1:]))}]"
        label = graph.label(name)
        if label not in found:
            raise InvalidConfig(f"{path}: no array {label!r}; it holds {', '.join(map(repr, found)) or 'nothing'}; {wanted}")
        array = found[label]
        fits = tensor.shape and array.ndim == len(tensor.shape) and array.shape[1:] == tensor.shape[1:] and array.shape[0] % tensor.shape[0] == 0
        if not fits or not array.size or array.dtype.kind not in "biuf":
            raise InvalidConfig(f"{path}: {name!r}: found {array.dtype} {list(array.shape)}; {wanted}")
        if not np.isfinite(array).all():
            raise InvalidConfig(f"{path}: {name!r}: holds infinities or NaN")
        parts[name] = array.astype(tensor.dtype).reshape(-1, *tensor.shape)
    counts = {name: len(array) for name, array in parts.items()}
    if len(set(counts.values())) > 1:
        raise InvalidConfig(f"{path}: the inputs have {counts} samples; accepted: as many of each")
    return [{name: array[i] for name, array in parts.items()} for i in range(min(next(iter(counts.values())), count or 1 << 62))]


def _quantized(runtime: Any, graph: Graph, given: Samples, *, unsigned: bool, label: str) -> Graph:
    """The network as ONNX Runtime quantises it, read back."""
    tools = runtime.quantization
    native = {op.kind for op in graph.operators if spec(op.kind, op.domain).integers not in (FLOAT, TABLE) or op.kind in UNARY}
    kinds = sorted({*tools.registry.QLinearOpsRegistry, *tools.registry.QDQRegistry, *native})
    integers = tools.QuantType.QUInt8 if unsigned else tools.QuantType.QInt8
    with tempfile.TemporaryDirectory() as folder, _silent():
        path = Path(folder) / "quantised.onnx"
        how = {"op_types_to_quantize": kinds, "per_channel": True, "activation_type": integers, "weight_type": tools.QuantType.QInt8}
        try:
            write_quantized(tools, graph, given, path, **how)
        except Exception as error:  # whatever ONNX Runtime finds wrong with the network
            raise UnsupportedModel(f"{label}: ONNX Runtime cannot quantise it: {one_line(error)}") from None
        return replace(load(path), name=graph.name)


def write_quantized(tools: Any, graph: Graph, samples: Samples, path: Path, **how: Any) -> None:
    """A QDQ file of a network, calibrated on these samples. `tools`: onnxruntime.quantization; `how`: of its quantize_static."""
    model, left = to_model(graph), iter(samples)
    model.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")  # BatchNormalization is folded, shapes are inferred

    class Reader(tools.CalibrationDataReader):
        """Hands out the samples one by one."""

        def get_next(self) -> Mapping[str, np.ndarray] | None:
            """The next sample; None when there are no more."""
            return next(left, None)

    tools.quantize_static(model, path, Reader(), quant_format=tools.QuantFormat.QDQ, **how)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without the advice that ONNX Runtime's tools log."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _weight_bytes(graph: Graph) -> int:
    return sum(value.nbytes for value in graph.constants.values() if value is not None)


def _report(graph: Graph, path: Path, weight_bytes: int) -> dict[str, int]:
    """What of the network is int8 now: operators by arithmetic."""
    counts: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {}
    for operator in graph.operators:
        call = Call.of(graph, operator)
        integers = bool(call.result_tensors) and call.result_tensors[0].quantization is not None
        how = arithmetic(call).value if integers else "not quantised"
        counts[how] += 1
        kinds.setdefault(how, Counter())[operator.kind] += 1
    rows = table("arithmetic", "operators", "kinds")
    for how, count in counts.most_common():
        rows.add_row(how, str(count), ", ".join(kind for kind, _ in kinds[how].most_common(4)) + (", ..." if len(kinds[how]) > 4 else ""))
    out.print(rows)
    note(graph)
    quantised = sum(count for how, count in counts.items() if how != "not quantised")
    out.print(
        f"wrote {shown(path)}: {quantised} of {len(graph.operators)} operators on 8-bit maps; "
        f"constants {mib(weight_bytes)} MiB before, {mib(_weight_bytes(graph))} MiB now",
        soft_wrap=True,
    )
    return dict(counts)
