"""PyTorch's own modules as generated code: results are those of eager, and what cannot compile is named."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
from torch import nn  # noqa: E402

import lfopt  # noqa: E402
from lfopt.app.pytorch import backend as of_torch  # noqa: E402
from lfopt.app.pytorch.backend import backend  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.test_packaging import PROJECT  # noqa: E402

ONE_THREAD = {"threads": 1, "target": "c99"}


@pytest.fixture(autouse=True)
def fresh(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing compiled, nothing said."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    torch.compiler.reset()
    of_torch.say.cache_clear()
    torch.manual_seed(0)
    yield
    torch.compiler.reset()


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=backend, options={**ONE_THREAD, **options})


def same(model: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs a model compiled, which may run nothing eager, and eager; returns what it is compiled to."""
    fast = compiled(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", lfopt.EagerFallback)
        torch.testing.assert_close(fast(*args, **kwargs), model(*args, **kwargs), rtol=1e-4, atol=1e-5)
    return fast


def eager(model: Any, *args: Any) -> str:
    """What is said of a model that runs eager, and gives what it gives."""
    fast = compiled(model)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        output = fast(*args)
        torch.testing.assert_close(output, model(*args))
        fast(*args)
    (message,) = [str(one.message) for one in said if one.category is lfopt.EagerFallback]
    return message


class Small(nn.Module):
    """A convolution, a depthwise one, and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        y = self.stem(x)
        return self.head((y + self.depthwise(y)).mean((2, 3)))


# -- torch.compile -------------------------------------------------------------------------------------------


def test_pytorch_finds_the_backend_by_its_entry_point() -> None:
    ((name, place),) = PROJECT["project"]["entry-points"]["torch_dynamo_backends"].items()
    assert name == "lfopt" and EntryPoint(name, place, "torch_dynamo_backends").load() is backend


def test_a_module_gives_what_it_gives_eager_for_any_layout() -> None:
    model, x = Small().eval(), torch.randn(1, 3, 8, 8)
    fast = same(model, x)
    with torch.no_grad():
        for other in (x.to(memory_format=torch.channels_last), torch.randn(1, 8, 8, 3).permute(0, 3, 1, 2)):
            torch.testing.assert_close(fast(other), model(other), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_weights_that_change_in_place_are_noticed() -> None:
    model, x = Small().eval(), torch.randn(1, 3, 8, 8)
    fast = same(model, x)
    with torch.no_grad():
        model.head.weight.mul_(2)
        model.get_buffer("stem.1.running_mean").add_(1)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
        before = model(x)
        model.head.weight.data.zero_()  # nobody counts that: the code keeps what it had
        torch.testing.assert_close(fast(x), before, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_one_graph_serves_modules_of_one_class_with_weights_of_their_own() -> None:
    layers, x = [nn.Linear(4, 4) for _ in range(3)], torch.ones(2, 4)
    run = compiled(lambda layer, x: layer(x).tanh())
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("error", lfopt.EagerFallback)
        for layer in (*layers, *layers):
            torch.testing.assert_close(run(layer, x), layer(x).tanh(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_graph_breaks_numbers_and_open_shapes_are_programs_of_their_own() -> None:
    def steps(x: Any, factor: int, mask: Any, ids: Any) -> Any:
        y = torch.where(mask, x * factor, x)
        torch._dynamo.graph_break()
        return y.relu() + x.shape[0], ids + 1

    fast = compiled(steps)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", lfopt.EagerFallback)
        for rows, factor in ((2, 2), (3, 2), (4, 5)):
            given = (torch.randn(rows, 3), factor, torch.tensor([True, False, True]), torch.arange(3))
            torch.testing.assert_close(fast(*given), steps(*given))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (torch.linalg.det, r"node 'n0' \(Det\): a matrix of 4 x 4"),
        (nn.Linear(4, 4), "needs gradients"),
        (lambda x: x.view(-1), "shares memory"),
        pytest.param(lambda x: x.add_(0) * 2, "'l_x_' changed in place", marks=pytest.mark.slow),
        pytest.param(
            lambda x: nn.functional.dropout(x, 1e-9), r"\(Dropout\): training mode", marks=pytest.mark.slow
        ),
        pytest.param(torch.fft.fft, "found complex64", marks=pytest.mark.slow),
        pytest.param(lambda x: x + torch.rand(4) * 0, "RandomUniformLike", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_compiled_runs_eager_and_is_named_once(model: Callable[[Any], Any], said: str) -> None:
    assert re.search(said, eager(model, torch.eye(4)))


def test_options_are_those_of_lfopt_compile() -> None:
    for options, said in (
        ({"thread": 1}, "options: found 'thread'; accepted: threads, target"),
        ({"threads": 0}, "threads: found 0; accepted"),
    ):
        with pytest.raises(Exception, match=said):
            torch.compile(torch.relu, backend=backend, options=options)(torch.ones(3))
    with pytest.raises(Exception, match="mode: found 'max-autotune'; accepted: none"):
        torch.compile(torch.relu, backend=backend, mode="max-autotune")(torch.ones(3))


# -- lfopt.compile, lfopt.load -------------------------------------------------------------------------------


class Nested(nn.Module):
    """Inputs by name, of several types; nested results."""

    def forward(self, x: Any, *, scale: float = 1.0, ids: Any = None) -> Any:
        return {"scaled": x * scale, "rest": [None, (ids + 1,)]}


def test_a_module_is_called_as_it_is_called_with_tensors_or_arrays() -> None:
    compiled, x, ids = lfopt.compile(Nested(), target="c99"), torch.randn(2, 3), torch.arange(4)
    torch.testing.assert_close(compiled(x, ids=ids, scale=2.0), Nested()(x, ids=ids, scale=2.0))
    outputs = compiled(x.numpy(), ids=ids.numpy(), scale=2.0)
    assert isinstance(outputs["scaled"], np.ndarray) and np.array_equal(
        outputs["rest"][1][0], ids.numpy() + 1
    )
    assert re.match(
        r"CompiledByCall\(Nested: 1 program; the last: Compiled\(Nested: x float32 \[2, 3\], .* B of weights",
        repr(compiled),
    )
    with pytest.raises(lfopt.LfoptError, match=r"found an argument of type set; accepted: tensors"):
        compiled(x, ids={1})


@pytest.mark.slow
def test_programs_of_a_module_follow_its_weights_and_open_shapes() -> None:
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    compiled = lfopt.compile(model, target="c99")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        model.bias.add_(1)
        torch.testing.assert_close(compiled(x), model(x))
        model.weight = nn.Parameter(torch.zeros(3, 4))
        torch.testing.assert_close(compiled.run({"input": x}), model(x))
        free = lfopt.compile(
            torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)), target="c99"
        )
        for rows in (2, 5):
            torch.testing.assert_close(free(torch.ones(rows, 4)), model(torch.ones(rows, 4)))
    for call, said in (
        (
            lambda: compiled(x.to("meta")),
            r"input: found float32 \[2, 4\], torch.strided, on meta; accepted: a dense tensor on the CPU",
        ),
        (lambda: compiled(torch.zeros(2, 5)), "Linear: torch.export: "),
        (
            lambda: lfopt.compile(nn.BatchNorm1d(4))(x),
            "BatchNorm1d: found 'running_mean' changed in place; accepted: ",
        ),
    ):
        with pytest.raises(lfopt.LfoptError, match=said):
            call()


@pytest.mark.slow
def test_modules_and_programs_are_networks() -> None:
    model, x = Small().eval(), torch.randn(1, 3, 8, 8)
    searched = lfopt.search(model, "64KiB", input_shapes={"x": (1, 3, 8, 8)})
    assert {operator.origin.scope for operator in searched.graph.operators} > {"depthwise", "head"}
    program = torch.export.export(model, (x,))
    graph = lfopt.load(program)
    assert [graph.shape(name) for name in graph.inputs] == [(1, 3, 8, 8)]
    with pytest.raises(
        lfopt.InvalidConfig,
        match=r"Small: input_shapes: found no shapes; accepted: shapes of float32 "
        r"inputs of forward \(x\), or",
    ):
        lfopt.load(model)
    session = lfopt.InferenceSession(program, target="c99")
    assert [(one.name, one.type, one.shape) for one in session.get_inputs()] == [
        ("x", "tensor(float)", [1, 3, 8, 8])
    ]
    (y,) = session.run(None, {"x": x.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(y, model(x).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_examples_of_the_page_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = torch._dynamo.backends.registry
    known._lazy_import()
    monkeypatch.setitem(
        known._BACKENDS, "lfopt", EntryPoint("lfopt", "lfopt.app.pytorch.backend:backend", "")
    )
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "pytorch.md").read_text(), re.DOTALL):
        exec(block, names)
    # `y` and `model` are those of the last block, a session
    np.testing.assert_allclose(names["y"], names["model"](names["x"]).detach(), rtol=1e-4, atol=1e-5)


# -- modules of PyTorch's own --------------------------------------------------------------------------------


def block(channels: int) -> nn.Module:
    """An inverted residual without its skip."""
    wide = 4 * channels
    return nn.Sequential(
        nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
        nn.Conv2d(wide, wide, 3, 2, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.Hardswish(),
        nn.Conv2d(wide, channels, 1),
    )  # fmt: skip


class Residual(nn.Module):
    """A block of ResNet between a stem and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.body = nn.Sequential(
            nn.Conv2d(16, 16, 3, 1, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, 1, 1),
            nn.BatchNorm2d(16),
        )
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))

    def forward(self, x: Any) -> Any:
        y = self.stem(x)
        return self.head((y + self.body(y)).relu())


class Tied(nn.Module):
    """An embedding whose table is also the last layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.last = nn.Linear(16, 50, bias=False)
        self.last.weight = self.table.weight

    def forward(self, ids: Any) -> Any:
        return self.last(self.table(ids))


IMAGE, TOKENS = (1, 3, 32, 32), (2, 6, 16)
PADDED = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
LAYER: dict[str, Any] = {"dim_feedforward": 32, "batch_first": True}
MODULES: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "residual": (Residual, lambda: (torch.randn(IMAGE),)),
    "inverted residual": (lambda: block(8), lambda: (torch.randn(1, 8, 16, 16),)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(16, 2, **LAYER), lambda: (torch.randn(TOKENS),)),
    "encoder layer, gelu, norm first": (
        lambda: nn.TransformerEncoderLayer(16, 2, activation="gelu", norm_first=True, **LAYER),
        lambda: (torch.randn(TOKENS), torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)),
    ),
    "encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, **LAYER), 2, enable_nested_tensor=False
        ),
        lambda: (torch.randn(TOKENS), None, PADDED),
    ),
    "decoder layer": (
        lambda: nn.TransformerDecoderLayer(16, 2, **LAYER),
        lambda: (torch.randn(TOKENS), torch.randn(TOKENS)),
    ),
    "attention": (
        lambda: nn.MultiheadAttention(16, 2, batch_first=True),
        lambda: (x := torch.randn(TOKENS), x, x),
    ),
    "attention, not of itself": (
        lambda: nn.MultiheadAttention(16, 2),
        lambda: tuple(torch.randn(3, 5, 2, 16)),
    ),
    "lstm": (lambda: nn.LSTM(8, 12, batch_first=True), lambda: (torch.randn(1, 5, 8),)),
    "gru": (lambda: nn.GRU(8, 12), lambda: (torch.randn(5, 1, 8),)),
    "tied": (Tied, lambda: (torch.randint(50, (2, 7)),)),
    "group norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.SiLU()),
        lambda: (torch.randn(IMAGE),),
    ),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU()),
        lambda: (torch.randn(TOKENS),),
    ),
    "transposed convolution": (
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 4, 2, 1), nn.Tanh()),
        lambda: (torch.randn(IMAGE),),
    ),
    "upsample": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Upsample(scale_factor=2, mode="bilinear")),
        lambda: (torch.randn(IMAGE),),
    ),
    "upsample, nearest": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Upsample(scale_factor=2)),
        lambda: (torch.randn(IMAGE),),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_modules_of_pytorch_give_what_they_give_eager(name: str) -> None:
    make, inputs = MODULES[name]
    model, given = make().eval(), inputs()
    same(model, *given)
    compiled = lfopt.compile(model, target="c99")
    with torch.no_grad():
        torch.testing.assert_close(compiled(*given), model(*given), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_run_or_are_named(dtype: Any) -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).to(dtype), torch.randn(2, 8, dtype=dtype)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", lfopt.EagerFallback)
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=2e-2, atol=2e-2)
