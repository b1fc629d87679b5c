"""A compiled model, run from Python."""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from codegen.runtime import CannotRun, Compiled, _end_all
from lfopt.ir import InvalidConfig, Tensor
from tests.codegen.twice import SHAPE, compiled, twice

X = np.arange(48, dtype=np.float32).reshape(SHAPE)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compiled(twice(), tmp_path_factory.mktemp("twice"))


def test_a_library_says_what_goes_in_and_out(model: Compiled) -> None:
    assert model.inputs == (Tensor("x", SHAPE, "float32"),)
    assert model.outputs == (Tensor("y", SHAPE, "float32"),)
    assert (model.arena_bytes, model.context_bytes, model.weights_bytes) == (192, 208, 4)


def test_outputs_come_by_name_and_are_the_callers_own(model: Compiled) -> None:
    first, second = model.run({"x": X}), model.run({"x": X + 1})
    assert list(first) == ["y"]
    assert np.array_equal(first["y"], 2 * X)
    assert np.array_equal(second["y"], 2 * X + 2)


def test_arrays_in_c_order_are_read_where_they_are(model: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[int] = []
    pointer = model._pointer
    monkeypatch.setattr(model, "_pointer", lambda array: passed.append(array.ctypes.data) or pointer(array))
    fixed = X.copy()
    fixed.flags.writeable = False
    output = model.run({"x": fixed})["y"]
    assert fixed.ctypes.data in passed
    assert output.ctypes.data in passed


OTHERWISE: dict[str, Callable[[], np.ndarray]] = {
    "transposed": lambda: np.ascontiguousarray(X.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "every other": lambda: np.repeat(X, 2, axis=3)[..., ::2],
    "backwards": lambda: np.ascontiguousarray(X[..., ::-1])[..., ::-1],
    "the other byte order": lambda: X.astype(X.dtype.newbyteorder()),
    "one byte off": lambda: np.frombuffer(b"\0" + X.tobytes(), np.float32, 48, offset=1).reshape(SHAPE),
    "broadcast": lambda: np.broadcast_to(X, SHAPE),
}


@pytest.mark.parametrize("how", OTHERWISE)
def test_arrays_that_lie_otherwise_give_the_same(model: Compiled, how: str) -> None:
    assert np.array_equal(model.run({"x": OTHERWISE[how]()})["y"], 2 * X)


def test_inputs_come_by_name_in_order_or_alone(model: Compiled, tmp_path: Path) -> None:
    for given in ({"x": X}, MappingProxyType({"x": X}), [X], (X,), X):
        assert np.array_equal(model.run(given)["y"], 2 * X)
    scaled = compiled(twice("-DSCALED"), tmp_path)
    for given in ({"x": X, "s=1": np.array(3)}, [np.int64(3), X], (np.array(3), X)):
        assert np.array_equal(scaled.run(given)["y"], 6 * X)
    with pytest.raises(
        InvalidConfig,
        match=r"found ndarray; accepted: 's=1' \(int64 \[\]\), "
        r"'x' \(float32 \[1, 3, 4, 4\]\), as arrays by name",
    ):
        scaled.run(X)
    with pytest.raises(
        InvalidConfig, match=r"input 's=1': found float32 \[1, 3, 4, 4\]; accepted: int64 \[\]"
    ):
        scaled.run([X, np.array(3)])


X_IS = r"accepted: 'x' \(float32 \[1, 3, 4, 4\]\)"
FLOATS = r"float32 \[1, 3, 4, 4\]$"
WRONG: dict[str, tuple[object, str]] = {
    "absent": ({}, f"input 'x': absent; accepted: {FLOATS}"),
    "another name": ({"x": X, "z": X}, f"twice: found input 'z'; {X_IS}$"),
    "a name of another type": ({b"x": X}, f"twice: found input 'bytes'; {X_IS}$"),
    "another type": (
        {"x": X.astype(np.float64)},
        rf"input 'x': found float64 \[1, 3, 4, 4\]; accepted: {FLOATS}",
    ),
    "another shape": ({"x": X.reshape(1, 3, 16)}, r"found float32 \[1, 3, 16\]; accepted: float32"),
    "a list": (
        {"x": X.tolist()},
        f"input 'x': found list; accepted: a NumPy array, or one with __dlpack__, {FLOATS}",
    ),
    "nothing for it": ({"x": None}, "input 'x': found NoneType; accepted: a NumPy array"),
    "objects": ({"x": X.astype(object)}, "found object"),
    "texts": ({"x": X.astype(str)}, "found str"),
    "records": ({"x": np.zeros(SHAPE, [("a", np.float32)])}, "found void"),
    "masked": ({"x": np.ma.masked_greater(X, 3)}, "input 'x': found MaskedArray"),
    "lists of numbers": (
        X.tolist(),
        f"input 'x': found list; accepted: a NumPy array, or one with __dlpack__, {FLOATS}",
    ),
    "numbers": ([1.0, 2.0], f"twice: found 2 inputs; {X_IS}$"),
    "no inputs": ([], f"twice: found 0 inputs; {X_IS}$"),
    "too many": ((X, X), f"twice: found 2 inputs; {X_IS}$"),
    "text": (
        "x",
        f"twice: found str; {X_IS}, as arrays by name, or a list or tuple of arrays in this order$",
    ),
    "None": (None, "twice: found NoneType; accepted"),
    "generator": ((x for x in [X]), "twice: found generator; accepted"),
    "set": ({1}, "twice: found set; accepted"),
    "bytes": (b"x", "twice: found bytes; accepted"),
    "number": (1.0, "twice: found float; accepted"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_inputs_are_refused_by_name(model: Compiled, what: str) -> None:
    given, message = WRONG[what]
    with pytest.raises(InvalidConfig, match=message) as caught:
        model.run(given)  # type: ignore[arg-type]
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_code_that_is_loaded_stays_whatever_happens_to_its_file(tmp_path: Path) -> None:
    model = compiled(twice(), tmp_path)
    library, content = tmp_path / "libtwice.so", (tmp_path / "libtwice.so").read_bytes()
    os.truncate(library, 0)
    assert np.array_equal(model.run(X)["y"], 2 * X)
    with pytest.raises(CannotRun, match="not a library"):
        Compiled(library, "twice", tmp_path / "weights.bin")
    library.write_bytes(content)
    assert np.array_equal(Compiled(library, "twice", tmp_path / "weights.bin").run(X)["y"], 2 * X)
    assert np.array_equal(compiled(twice(embed=True), tmp_path).run(X)["y"], 2 * X), (
        "another library of this name"
    )


def test_many_threads_at_once_each_get_their_own_result(model: Compiled) -> None:
    def run(k: int) -> bool:
        return all(np.array_equal(model.run({"x": X + k})["y"], 2 * (X + k)) for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(32)))
    assert 1 <= len(model._idle) <= 8  # contexts are used again


def test_memory_of_a_context_is_there_until_its_threads_have_ended(model: Compiled) -> None:
    there, idle = list[bool](), [model._new_context()]
    memory = weakref.ref(idle[0].memory)
    _end_all(idle, lambda _: there.append(memory() is not None), None)
    assert there == [True]
    assert memory() is None


def test_scalars_of_other_types_go_in_too(tmp_path: Path) -> None:
    model = compiled(twice("-DSCALED"), tmp_path)
    assert model.inputs[0] == Tensor("s=1", (), "int64")
    assert np.array_equal(model.run({"x": X, "s=1": np.array(3)})["y"], 6 * X)


def test_linked_weights_need_no_file(tmp_path: Path) -> None:
    assert np.array_equal(compiled(twice(embed=True), tmp_path).run({"x": X})["y"], 2 * X)


def test_code_that_leaves_its_arena_gives_no_outputs(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="wrote outside its arena"):
        compiled(twice("-DOVERRUN"), tmp_path).run({"x": X})


def test_files_that_are_not_this_models_are_named(model: Compiled, tmp_path: Path) -> None:
    library = shutil.copy(model.folder / "libtwice.so", tmp_path)
    (tmp_path / "long.bin").write_bytes(bytes(5))
    (tmp_path / "other.bin").write_bytes(bytes(4))
    (tmp_path / "empty.bin").write_bytes(b"")
    for name, message in {
        "none.bin": "No such file",
        "long.bin": "found 5 B; accepted: 4 B",
        "other.bin": "not the weights of twice",
        "empty.bin": "empty",
    }.items():
        with pytest.raises(CannotRun, match=f"{name}: .*{message}"):
            Compiled(Path(library), "twice", tmp_path / name)
    with pytest.raises(CannotRun, match="not a library of model 'thrice'"):
        Compiled(Path(library), "thrice", tmp_path / "other.bin")
    with pytest.raises(CannotRun, match=r"other.bin: not a library"):
        Compiled(tmp_path / "other.bin", "twice", tmp_path / "other.bin")
