"""A hostile file gives one line of LfoptError: no other exception, crash, hang or gigabytes.

The cases load in another process, under limits.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import (
    make_attribute,
    make_function,
    make_graph,
    make_node,
    make_opsetid,
    make_tensor_value_info,
)

from lfopt.frontend import from_model, load
from lfopt.ir import InvalidModel, LfoptError, UnsupportedModel
from lfopt.ops.reference import reference
from tests.frontend import fuzz
from tests.frontend.small_models import NEWEST, build, declare, floats, ints, one, twice, with_functions


def scalar(value, dtype=np.int64):
    return np.array(value, dtype)


def relu(shape=(2, 3), opset=18):
    return one("Relu", shape, opset=opset)


def edited(model, edit):
    edit(model)
    return model


def initializer(**fields):
    """A MatMul whose weights are changed."""
    model = one("MatMul", (2, 40), floats(40, 50), opset=18)
    tensor = model.graph.initializer[0]
    for name, value in fields.items():
        tensor.ClearField(name)
        if isinstance(value, list):
            getattr(tensor, name).extend(value)
        elif value is not None:
            setattr(tensor, name, value)
    return model


def folded(*nodes, constants, opset=18):
    """Constants made by nodes, the last of which makes "c", added to the input."""
    return build([*nodes, make_node("Add", ["x", "c"], ["y"])], {"x": (1,)}, constants, opset=opset)


def before_slice(*nodes, opset, constants=None, shape=(1, 4, 6, 7)):
    """A map m that has gone wrong, and a Slice of it."""
    cut = {"st": ints(1), "en": ints(3), "ax": ints(2)}
    return build(
        [*nodes, make_node("Slice", ["m", *cut], ["y"])],
        {"x": shape},
        {**cut, **(constants or {})},
        opset=opset,
    )


def functions(*definitions, call, opset=18):
    return with_functions(
        build([make_node(call, ["x"], ["y"], domain="f")], {"x": (1, 3)}, opset=opset, domains=["f"]),
        *definitions,
    )


def repeated(name, callee, times):
    """Function f.name, which calls f.callee (or Relu) several times in a row."""
    chain = ["a", *(f"q{i}" for i in range(times - 1)), "b"]
    body = [make_node(callee, [i], [o], domain="" if callee == "Relu" else "f") for i, o in pairwise(chain)]
    return make_function("f", name, ["a"], ["b"], body, [make_opsetid("", 18), make_opsetid("f", 1)])


def in_branches(then, other=None, kind="If"):
    """A node with branches, on a condition that is computed."""
    branches: dict[str, Any] = {
        f"{name}_branch": make_graph([node], name, [], [make_tensor_value_info("b", 1, None)])
        for name, node in (("then", then), ("else", other or make_node("Neg", ["x"], ["b"])))
    }
    nodes = [
        make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
    ]
    return build([*nodes, make_node(kind, ["c"], ["y"], name="maybe", **branches)], {"x": (2, 3)}, opset=18)


def itself():
    """A function whose branches call it."""
    branch = make_graph(
        [make_node("g", ["a"], ["inner"], domain="f")],
        "branch",
        [],
        [make_tensor_value_info("inner", 1, None)],
    )
    nodes = [
        make_node("ReduceMax", ["a"], ["m"], keepdims=0),
        make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
    ]
    body = [*nodes, make_node("If", ["c"], ["b"], name="maybe", then_branch=branch, else_branch=branch)]
    return functions(
        make_function("f", "g", ["a"], ["b"], body, [make_opsetid("", 18), make_opsetid("f", 1)]), call="g"
    )


def looped(turns, depth=1):
    """Loops inside of loops, so often each (None: as an input says)."""
    node, known = None, [] if turns is None else [make_node("Constant", [], ["n"], value_int=turns)]
    for _ in range(depth):
        inside = [*known, make_node("Relu", ["before"], ["after"])] if node is None else [*known, node]
        ends = [
            make_tensor_value_info(*told)
            for told in (("k", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("before", 1, [2, 3]))
        ]
        body = make_graph(
            inside,
            "body",
            ends,
            [make_tensor_value_info("go", TensorProto.BOOL, []), make_tensor_value_info("after", 1, [2, 3])],
        )
        node = make_node("Loop", ["n", "", "before"], ["after"], name="again", body=body)
    assert node is not None
    model = build([*known, make_node("Relu", ["x"], ["before"]), node], {"x": (2, 3)}, opset=18)
    if turns is None:
        model.graph.input.append(make_tensor_value_info("n", TensorProto.INT64, []))
    return model


def sparse(model):
    model.graph.sparse_initializer.add().dims.extend([3, 3])


HUGE = 1 << 62
BIG = {"shape": ints(160_000, 160_000), "one": floats(1, 1)}
EXPAND = make_node("Expand", ["one", "shape"], ["e"])
CASES = {  # name: (model, what the message says)
    "dims that overflow": (
        lambda: initializer(dims=[HUGE, HUGE]),
        r"initializer 'c0': shape \[.*\] is out of range",
    ),
    "negative dims": (lambda: initializer(dims=[-40, 50]), r"shape \[-40, 50\] is out of range"),
    "a thousand dims": (lambda: initializer(dims=[1] * 1000), "shape of rank 1000 is out of range"),
    "a 2 GB claim with 8 KB of data": (
        lambda: initializer(dims=[1 << 15, 1 << 14]),
        "initializer 'c0' of dims .*reshape",
    ),
    "more data than dims": (lambda: initializer(dims=[4, 5]), "initializer 'c0' of dims"),
    "element type 99": (
        lambda: initializer(data_type=99),
        "initializer 'c0': element type 99 is not one of ONNX's",
    ),
    "element type 0": (lambda: initializer(data_type=0), "element type 0"),
    "a string where numbers belong": (
        lambda: initializer(data_type=TensorProto.STRING),
        "initializer 'c0' of dims",
    ),
    "no name": (lambda: initializer(name=""), "initializer '' has no name"),
    "initializer twice": (
        lambda: edited(initializer(), lambda m: m.graph.initializer.append(m.graph.initializer[0])),
        "'c0' is there twice",
    ),
    "sparse initializer": (lambda: edited(relu(), sparse), "sparse initializers are not supported"),
    "input dims that overflow": (lambda: relu((HUGE, HUGE)), "input 'x'.*out of range"),
    "a symbolic dim": (
        lambda: relu(("batch", 3)),
        r"shape \[batch,3\] is not static; give --input-shape batch=1 or",
    ),
    "a sequence input": (
        lambda: edited(
            relu(), lambda m: m.graph.input[0].type.sequence_type.elem_type.tensor_type.SetInParent()
        ),
        "input 'x'|elem_type",
    ),
    "an optional input": (
        lambda: edited(
            relu(),
            lambda m: m.graph.input[0].type.CopyFrom(
                onnx.helper.make_optional_type_proto(m.graph.input[0].type)
            ),
        ),
        "input 'x': only tensors are supported",
    ),
    "a node that reads its own output": (
        lambda: edited(relu(), lambda m: m.graph.node[1].input.__setitem__(0, "y0")),
        "y0",
    ),
    "a cycle": (lambda: edited(relu(), lambda m: m.graph.node[0].input.__setitem__(0, "z0")), "z0"),
    "an output made twice": (
        lambda: edited(relu(), lambda m: m.graph.node[1].output.__setitem__(0, "r")),
        "'?r'? .*|SSA",
    ),
    "an output that nothing makes": (
        lambda: edited(relu(), lambda m: setattr(m.graph.output[0], "name", "gone")),
        "'gone' is not an output of any node",
    ),
    "a node without outputs": (lambda: edited(relu(), lambda m: m.graph.node[1].ClearField("output")), "."),
    "a node of no type": (lambda: edited(relu(), lambda m: m.graph.node[1].ClearField("op_type")), "."),
    "names that are not UTF-8": (
        lambda: relu().SerializeToString().replace(b"\x12\x01r", b"\x12\x01\xff"),
        "is not UTF-8",
    ),
    "channels that are not those of the weights": (
        lambda: one("Conv", (1, 1, 8, 8), floats(4, 3, 3, 3), opset=18),
        "1 input channels for weights of shape",
    ),
    "groups that do not divide": (
        lambda: one("Conv", (1, 6, 8, 8), floats(4, 2, 3, 3), group=3, opset=18),
        "in 3 groups",
    ),
    "a kernel of another size": (
        lambda: one("Conv", (1, 3, 8, 8), floats(4, 3, 3, 3), kernel_shape=[5, 5], opset=18),
        "kernel_shape",
    ),
    "channels of a transposed convolution": (
        lambda: one("ConvTranspose", (1, 4, 8, 8), floats(3, 4, 3, 3), opset=18),
        "4 input channels",
    ),
    "a bias of another length": (
        lambda: one("Conv", (1, 3, 8, 8), floats(4, 3, 3, 3), floats(5), opset=18),
        r"input 2 of shape \[5\]; accepted: \[4\]",
    ),
    "a product that is none": (
        lambda: one("Gemm", (2, 3), floats(4, 5), opset=18),
        r"product of \[2, 3\] and \[4, 5\]",
    ),
    "a sum that does not broadcast": (
        lambda: one("Gemm", (2, 3), floats(3, 5), floats(2), opset=18),
        r"input 2 of shape \[2\]; accepted: one that broad",
    ),
    "scales of other channels": (
        lambda: one("InstanceNormalization", (1, 3, 4, 4), floats(2), floats(3), opset=18),
        r"input 1 of shape \[2\]; accepted: \[3\]",
    ),
    "an unknown domain": (
        lambda: edited(relu(), lambda m: setattr(m.graph.node[1], "domain", "nowhere")),
        "domain 'nowhere' has no opset import",
    ),
    "an unknown operator": (
        lambda: one("Nothing", (2, 3), opset=18),
        r"\(Nothing\): the shape of output 'y0' is not static, and lfopt does not know",
    ),
    "a far IR version": (lambda: edited(relu(), lambda m: setattr(m, "ir_version", 1000)), "(?i)ir_version"),
    "no IR version": (lambda: edited(relu(), lambda m: m.ClearField("ir_version")), "(?i)ir_version"),
    "a condition that decides about shapes": (
        lambda: in_branches(make_node("Relu", ["x"], ["b"]), make_node("ReduceMax", ["x"], ["b"])),
        (
            r"node 'maybe' \(If\): its condition is computed, "
            r"and decides about float32 \[2, 3\] or float32 \[1, 1\]"
        ),
    ),
    "a branch that reads what nothing makes": (
        lambda: in_branches(make_node("Relu", ["gone"], ["b"])),
        "'gone'",
    ),
    "a branch that is not legal": (lambda: in_branches(make_node("Reshape", ["x"], ["b"])), "Reshape"),
    "branches of another operator": (
        lambda: in_branches(make_node("Relu", ["x"], ["b"]), kind="Relu"),
        "found graphs inside of the operator",
    ),
    "a function that calls itself in a branch": (itself, "graphs inside of graphs, 8 deep"),
    "a loop without end": (
        lambda: looped(1 << 40),
        r"node 'again' \(Loop\): 1099511627776 iterations; lfopt reads loops of up to 1024",
    ),
    "a loop that turns as often as an input says": (
        lambda: looped(None),
        r"node 'again' \(Loop\): its number of iterations is computed",
    ),
    "loops in loops": (lambda: looped(1 << 9, depth=3), "more than 16384 nodes"),
    "bodies that are not there": (
        lambda: edited(relu(), lambda m: m.graph.node[1].attribute.append(make_attribute("lfopt.bodies", 0))),
        "lfopt's own",
    ),
    "Reshape with -1 twice": (
        lambda: one("Reshape", (2, 6), ints(-1, -1), opset=18),
        r"node 'y0' \(Reshape\)",
    ),
    "Reshape to more": (lambda: one("Reshape", (2, 6), ints(5, 5), opset=18), r"node 'y0' \(Reshape\)"),
    "an axis out of range": (lambda: one("Softmax", (2, 6), opset=18, axis=-9), "axis"),
    "Softmax along axis 2**62": (lambda: one("Softmax", (2, 6), opset=18, axis=1 << 62), "axis"),
    "LpNormalization along axis 7": (lambda: one("LpNormalization", (2, 6), opset=18, axis=7), "axis 7 of 2"),
    "Col2Im into an image of 2**62": (
        lambda: one("Col2Im", (1, 5, 15), ints(1 << 62, 5), ints(1, 5), opset=18),
        r"\(Col2Im\)",
    ),
    "Gather out of range": (lambda: one("Concat", (2, 6), floats(2, 6), opset=18, axis=7), "axis"),
    "Pad by a lot": (lambda: one("Pad", (2, 6), ints(HUGE, 0, HUGE, 0), opset=18), r"\(Pad\)"),
    "Pad by less than nothing": (
        lambda: one("Pad", (2, 6), ints(-5, 0, -5, 0), opset=18),
        r"\(Pad\).*out of range",
    ),
    "Tile by a lot": (lambda: one("Tile", (2, 6), ints(1 << 40, 1 << 40), opset=18), r"\(Tile\)"),
    "Expand by a lot": (
        lambda: one("Expand", (2, 6), ints(1 << 50, 2, 6), opset=18),
        r"\(Expand\).*out of range",
    ),
    "Resize by 1e9": (
        lambda: one("Resize", (1, 1, 6, 6), None, np.array([1, 1, 1e9, 1e9], np.float32), opset=18),
        r"\(Resize\).*out of range",
    ),
    "Resize by -1": (
        lambda: one("Resize", (1, 1, 6, 6), None, np.array([1, 1, -1, 1], np.float32), opset=18),
        r"\(Resize\)",
    ),
    "SpaceToDepth that does not divide": (
        lambda: one("SpaceToDepth", (1, 4, 6, 7), opset=18, blocksize=2),
        "another number of elements",
    ),
    "stride 0": (
        lambda: one("MaxPool", (1, 4, 6, 7), opset=18, kernel_shape=[2, 2], strides=[0, 0]),
        "strides",
    ),
    "Range without end": (
        lambda: folded(
            make_node("Range", ["a", "b", "d"], ["c"]),
            constants={"a": scalar(0), "b": scalar(HUGE), "d": scalar(1)},
        ),
        r"\(Range\)",
    ),
    "Range by nothing": (
        lambda: folded(
            make_node("Range", ["a", "b", "d"], ["c"]),
            constants={"a": scalar(0), "b": scalar(9), "d": scalar(0)},
        ),
        ".",
    ),
    "folding that needs 100 GB": (
        lambda: folded(
            EXPAND,
            make_node("Mul", ["e", "e"], ["f"]),
            make_node("ReduceSum", ["f"], ["c"], keepdims=0),
            constants=BIG,
        ),
        r"\(Expand\): a constant of shape .* takes 102,400,000,000 B; accepted: constants made at load",
    ),
    "ConstantOfShape of 100 GB": (
        lambda: folded(
            make_node("ConstantOfShape", ["shape"], ["e"]),
            make_node("ReduceSum", ["e"], ["c"], keepdims=0),
            constants=BIG,
        ),
        r"\(ConstantOfShape\): a constant of shape",
    ),
    "a function that calls itself": (
        lambda: functions(repeated("r", "r", 2), call="r"),
        "function 'r' calls itself",
    ),
    "functions that call each other": (
        lambda: functions(repeated("p", "q", 1), repeated("q", "p", 1), call="p"),
        "function 'p' calls itself",
    ),
    "ten thousand million million nodes": (
        lambda: functions(
            repeated("f0", "Relu", 10),
            *(repeated(f"f{i}", f"f{i - 1}", 10) for i in range(1, 16)),
            call="f15",
        ),
        "nodes once functions are inlined; lfopt takes",
    ),
    "functions that come to more than a model with functions may have": (
        lambda: functions(
            *(repeated(f"f{k}", f"f{k + 1}" if k < 14 else "Relu", 2) for k in range(15)), call="f0"
        ),
        "32768 nodes once functions are inlined; lfopt takes 16384",
    ),
    "calls nested too deep": (
        lambda: functions(
            repeated("f0", "Relu", 1),
            *(repeated(f"f{i}", f"f{i - 1}", 1) for i in range(1, 999)),
            call="f998",
        ),
        "nest more than 64 deep",
    ),
    "a function twice": (
        lambda: functions(repeated("r", "Relu", 1), repeated("r", "Relu", 2), call="r"),
        "defined twice",
    ),
    "a domain of lfopt's own": (
        lambda: build(
            [make_node("Conv", [], ["y"], domain="lfopt.shelter")],
            {"x": (2,)},
            opset=18,
            domains=["lfopt.shelter"],
        ),
        "is lfopt's own",
    ),
    "an attribute with external data": (
        lambda: edited(
            one(
                "ConstantOfShape", (2,), opset=18, value=onnx.numpy_helper.from_array(np.ones(1, np.float32))
            ),
            lambda m: (
                setattr(m.graph.node[1].attribute[0].t, "data_location", TensorProto.EXTERNAL),
                m.graph.node[1].attribute[0].t.external_data.add(key="location", value="/etc/passwd"),
            ),
        ),
        ".",
    ),
    # ONNX's shape inference aborts, crashes or hangs on these
    **{
        f"Split into fewer than its outputs, opset {v}": (
            lambda v=v: one("Split", (2, 6), opset=v, outputs=3, num_outputs=1),
            "num_outputs is 1, and there are 3 outputs",
        )
        for v in (18, NEWEST)
    },
    "GatherND of batch_dims -2": (
        lambda: one("GatherND", (2, 6), ints(0), opset=18, batch_dims=-2),
        "batch_dims is -2; it counts from 0",
    ),
    "LayerNormalization of an axis that is not there": (
        lambda: build(
            [make_node("LayerNormalization", ["x", "s"], ["y", "m"], axis=7)],
            {"x": (2, 3)},
            {"s": floats(3)},
            ["y"],
            opset=18,
        ),
        "axis is 7, of 2",
    ),
    "Einsum of bytes": (
        lambda: build([make_node("Einsum", ["x"], ["y"], equation=b"\xff")], {"x": (2, 3)}, opset=NEWEST),
        "the equation holds more than",
    ),
    "Expand to a shape of 4e18 dims": (
        lambda: build(
            [
                make_node("ConstantOfShape", ["n"], ["s"], value=onnx.numpy_helper.from_array(ints(2))),
                make_node("Expand", ["x", "s"], ["y"]),
            ],
            {"x": (1,)},
            {"n": ints(1 << 34)},
            opset=13,
        ),
        r"of shape \[17179869184\]",
    ),
    # ONNX's converter aborts the process on these unless the Slice is kept from it
    **{
        f"a kernel wider than its input, then Slice, opset {v}": (
            lambda v=v: before_slice(make_node("MaxPool", ["x"], ["m"], kernel_shape=[9, 9]), opset=v),
            r"node 'm' \(MaxPool\): output 'm': shape \[1, 4, -2, -1\] is out of range",
        )
        for v in (10, 13, 18, NEWEST)
    },
    "a negative input dim, then Slice": (
        lambda: before_slice(make_node("Relu", ["x"], ["m"]), opset=13, shape=(1, 4, -1, 7)),
        r"input 'x': shape \[1,4,\?,7\]",
    ),
    "DeformConv with offsets of other taps": (
        lambda: one("DeformConv", (1, 2, 5, 5), floats(3, 2, 3, 3), floats(1, 16, 3, 3), opset=22),
        r"\(DeformConv\): input 2 of shape \[1, 16, 3, 3\]; accepted: \[1, 18, 3, 3\]",
    ),
    "RoiAlign of more images than regions": (
        lambda: one("RoiAlign", (1, 2, 5, 5), floats(3, 4), ints(0, 0), opset=22),
        r"\(RoiAlign\): maps of shape .* of images \[2\]; accepted",
    ),
    "BitCast to another width": (
        lambda: one("BitCast", (2, 3), opset=26, to=TensorProto.DOUBLE),
        r"\(BitCast\)",
    ),
    "a sequence that is an output": (
        lambda: edited(
            build([make_node("SequenceConstruct", ["x", "x"], ["s"])], {"x": (2, 3)}, opset=18),
            lambda m: m.graph.output[0].CopyFrom(
                onnx.helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
            ),
        ),
        "graph output 's' is a sequence",
    ),
    "a place in a sequence that is not there": (
        lambda: build(
            [make_node("SequenceConstruct", ["x", "x"], ["s"]), make_node("SequenceAt", ["s", "k"], ["y"])],
            {"x": (2, 3)},
            {"k": np.array(2)},
        ),
        r"\(SequenceAt\): position \[2\] in a sequence of 2",
    ),
    "TopK of -4, then Slice": (
        lambda: before_slice(
            make_node("TopK", ["x", "k"], ["m", "i"], axis=2), opset=13, constants={"k": ints(-4)}
        ),
        r"\(TopK\).*out of range",
    ),
}


def as_bytes(model):
    return model if isinstance(model, bytes) else model.SerializeToString()


def test_no_case_crashes_hangs_or_raises_anything_else(tmp_path):
    files = [as_bytes(model()) for model, _ in CASES.values()]
    complaints = fuzz.run(range(len(files)), tmp_path, files.__getitem__)
    names = list(CASES)
    assert {names[i]: text for i, text in complaints.items()} == {}


@pytest.mark.parametrize("name", CASES)
def test_one_line_says_what_is_wrong(name, tmp_path):
    model, wanted = CASES[name]
    (tmp_path / "m.onnx").write_bytes(as_bytes(model()))
    with pytest.raises(LfoptError) as caught:
        load(tmp_path / "m.onnx")
    assert str(caught.value).startswith(f"{tmp_path}/m.onnx: ")
    assert re.search(wanted, str(caught.value)), str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"not a protobuf", bytes(1000), b"\xff" * 1000, b"\x08\x07"]
)
def test_a_file_that_is_no_model_is_refused(content, tmp_path):
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(InvalidModel, match="not an ONNX model"):
        load(tmp_path / "m.onnx")


def test_a_path_that_is_no_file_is_refused(tmp_path):
    for path, wanted in (
        (tmp_path, "not a file"),
        (tmp_path / "gone.onnx", "no such file"),
        (Path("/dev/zero"), "not a file"),
    ):
        with pytest.raises(InvalidModel, match=wanted):
            load(path)
    with pytest.raises(InvalidModel):
        load("a\0b")
    with pytest.raises(InvalidModel):
        load("x" * 5000)


def test_a_file_beyond_what_protobuf_holds_is_not_read(tmp_path):
    with (tmp_path / "m.onnx").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidModel, match="a protobuf has at most 2147483647"):
        load(tmp_path / "m.onnx")


def test_names_with_line_breaks_give_a_message_of_one_line():
    name = "a\nb\r\x1b[31m\u2028c"
    model = build([make_node("Nothing\n", ["x"], ["y"], name=name)], {"x": (2, 3)}, opset=18)
    with pytest.raises(UnsupportedModel) as caught:
        from_model(model, label="file\nname")
    assert str(caught.value).isprintable()
    graph = from_model(declare(model, {"y": (2, 3)}))
    assert all(note.isprintable() for note in graph.notes)


def test_a_file_reads_nothing_outside_its_attributes(tmp_path, monkeypatch):
    """onnx itself would read an attribute's external data from the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_bytes(bytes(8))
    tensor = TensorProto(dims=[2], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="secret")
    function = make_function(
        "f",
        "g",
        ["a"],
        ["b"],
        [make_node("Constant", [], ["c"], value=tensor), make_node("Add", ["a", "c"], ["b"])],
        [make_opsetid("", 18)],
    )
    (tmp_path / "models").mkdir()
    onnx.save(functions(function, call="g"), "models/m.onnx")
    with pytest.raises(LfoptError):
        load("models/m.onnx")


def test_a_deep_graph_of_20_000_nodes_with_one_name_loads():
    nodes = [make_node("Relu", [f"t{i}"], [f"t{i + 1}"], name="same") for i in range(20_000)]
    graph = from_model(build(nodes, {"t0": (1, 3)}, opset=13))
    assert len({op.name for op in graph.operators}) == 20_000


def test_functions_are_inlined():
    graph = from_model(
        with_functions(
            build(
                [make_node("Twice", ["x"], ["y"], domain="mine")], {"x": (2, 3)}, opset=18, domains=["mine"]
            ),
            twice(18),
        )
    )
    assert [op.kind for op in graph.operators] == ["Add", "Relu"]


def test_an_unknown_operator_of_known_shape_is_opaque_with_one_warning():
    nodes = [make_node("Odd", [f"t{i}"], [f"t{i + 1}"], domain="mine") for i in range(3)]
    graph = from_model(
        declare(
            build(nodes, {"t0": (2, 3)}, opset=18, domains=["mine"]), {"t1": (2, 3), "t2": (2, 4), "t3": (9,)}
        )
    )
    assert graph.notes == ("operators unknown to lfopt, each kept alone and opaque: Odd (3)",)
    assert graph.shape("t3") == (9,)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            {},
            (
                r"input 'x': shape \[batch,3,h,w\] is not static; "
                r"give --input-shape batch=1 h=224 w=224 or the like, or --input-shape x=1,3,224,224"
            ),
        ),
        (
            {"batch": 2, "w": 8},
            (
                r"shape \[batch,3,h,w\] is not static; "
                r"give --input-shape h=224 or the like, or --input-shape x=2,3,224,8"
            ),
        ),
        (
            {"y": (1, 3, 8, 8)},
            r"--input-shape 'y': the inputs are x \[batch,3,h,w\]; named dimensions: batch, h, w",
        ),
        ({"h": (1, 3)}, "--input-shape h=1,3: found for a dimension; accepted: h= and one whole number"),
        ({"h": 0}, "--input-shape h=0: found for a dimension"),
        ({"x": (1, 3, 8)}, "--input-shape gives 3 dims, the model has 4"),
        ({"x": (1, 3, 0, 8)}, "--input-shape 1,3,0,8: dims are at least 1"),
        ({"x": (1, 3, -8, 8)}, "dims are at least 1"),
        ({"x": (1, 3, 1 << 40, 8)}, "out of range"),
    ],
)
def test_wrong_input_shapes_are_refused(given, wanted):
    with pytest.raises(InvalidModel, match=wanted):
        from_model(relu(("batch", 3, "h", "w")), given)


def test_input_shapes_give_symbolic_dims_and_override_static_ones():
    assert from_model(relu(("batch", 3, "h", "w")), {"x": (2, 3, 8, 8)}).shape("z0") == (2, 3, 8, 8)
    assert from_model(relu(("batch", 3, "h", "h")), {"batch": 2, "h": 8}).shape("z0") == (2, 3, 8, 8)
    # an input's name wins
    assert from_model(relu(("batch", 3, "h", "x")), {"batch": 2, "h": (8,), "x": (1, 3, 4, 5)}).shape(
        "z0"
    ) == (1, 3, 4, 5)
    assert from_model(relu((1, 3)), {"x": (5, 3)}).shape("z0") == (5, 3)
    shapeless = relu((1, 3))
    shapeless.graph.input[0].type.tensor_type.ClearField("shape")
    assert from_model(shapeless, {"x": (7,)}).shape("z0") == (7,)


def test_overriding_a_static_shape_leaves_no_stated_shape_to_trust():
    stranger = declare(
        build([make_node("Odd", ["x"], ["y"], domain="mine")], {"x": (2, 3)}, opset=18, domains=["mine"]),
        {"y": (2, 4)},
    )
    assert from_model(stranger, {"x": (2, 3)}).shape("y") == (2, 4)
    with pytest.raises(UnsupportedModel, match="the shape of output 'y' is not static"):
        from_model(stranger, {"x": (4, 3)})


@pytest.mark.parametrize("size", [1 << 31, 1 << 62])
def test_a_window_larger_than_any_map_costs_what_the_map_costs(size):
    half = size // 2
    model = one("AveragePool", (1, 2, 4, 4), opset=18, kernel_shape=[size] * 2, pads=[half, half, half, half])
    graph = from_model(model)
    given = {graph.inputs[0]: np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)}
    (output,) = reference(graph, given).values()
    assert output.shape == (1, 2, 5, 5)
    np.testing.assert_allclose(output[0, 0, 2, 2], given[graph.inputs[0]][0, 0].mean(), rtol=1e-6)
