"""One library in a process of its own: `python worker.py LIBRARY` answers lines of JSON on stdin.

    {"do": "load", "model": "m.onnx", "inputs": "x.npz", "threads": 1, "element": "float32"}  ->  {}
    {"do": "outputs", "file": "y.npz"}  ->  {}: outputs of an inference, "0", "1" ... in the order of the ONNX
                                            file
    {"do": "run", "times": 3}  ->  {"wall": [...], "cpu": [...]}: seconds of inferences, after one that is not
                                   timed; cpu: of all threads

An answer {"refused": reason} says what the library made of it. Needs NumPy and the library alone, so that it
runs in any environment of `benchmarks/peers.py`. Every run takes arrays and gives arrays.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Run = Callable[[], list[np.ndarray]]
PR_SET_PDEATHSIG = 1  # linux/prctl.h
LONG = 0.5  # seconds of runs in a turn, after which none begins


def lfopt(request: dict[str, Any], values: Arrays) -> Run:
    """`model`: the compiled library, beside its weights; `name`: the prefix of its symbols."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    library = Path(request["model"])
    model = import_module("codegen.runtime").Compiled(
        library, request["name"], library.with_name("weights.bin")
    )
    return lambda: list(model.run(values).values())


def onnxruntime(request: dict[str, Any], values: Arrays) -> Run:
    """Default execution mode and optimizations."""
    library = import_module("onnxruntime")
    settings = library.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads, settings.log_severity_level = (
        request["threads"],
        1,
        3,
    )
    session = library.InferenceSession(request["model"], settings, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, values)


def openvino(request: dict[str, Any], values: Arrays) -> Run:
    """Pinned to the element type: left alone it computes in bfloat16 where it can."""
    precision = {"float32": "f32", "bf16": "bf16"}[request["element"]]
    settings = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": request["threads"],
        "PERFORMANCE_HINT": "LATENCY",
    }
    network = import_module("openvino").Core().compile_model(request["model"], "CPU", settings)
    return lambda: list(network(values).to_tuple())


def mnn(request: dict[str, Any], values: Arrays) -> Run:
    """`precision` high: float32.

    The converter is called where it lies: its Python wrapper would call pip, and report over the network.
    """
    library = import_module("MNN")
    converted = str(Path(request["model"]).with_suffix(".mnn"))
    import_module("_tools").mnnconvert(
        ["", "-f", "ONNX", "--modelFile", request["model"], "--MNNModel", converted, "--bizCode", "lfopt"]
    )
    network = library.Interpreter(converted)
    session = network.createSession({"backend": "CPU", "precision": "high", "numThread": request["threads"]})
    types = {"float32": library.Halide_Type_Float, "int32": library.Halide_Type_Int}
    narrow = {
        name: value.astype(np.int32) if value.dtype == np.int64 else value for name, value in values.items()
    }
    order = library.Tensor_DimensionType_Caffe

    def host(value: np.ndarray) -> Any:
        return library.Tensor(value.shape, types[value.dtype.name], value, order)

    given = [(network.getSessionInput(session, name), host(value)) for name, value in narrow.items()]
    tensors = [network.getSessionOutput(session, name) for name in request["outputs"]]
    network.runSession(session)
    hosts = [host(np.zeros(tensor.getShape(), np.float32)) for tensor in tensors]

    def run() -> list[np.ndarray]:
        for tensor, value in given:
            tensor.copyFrom(value)
        network.runSession(session)
        for tensor, value in zip(tensors, hosts, strict=True):
            tensor.copyToHostTensor(value)
        return [np.array(tensor.getNumpyData(), copy=False) for tensor in hosts]

    return run


def ncnn(request: dict[str, Any], values: Arrays) -> Run:
    """ncnn, converted by pnnx (its package wants torch, but has the program in it); float32 throughout."""
    library, model, package = import_module("ncnn"), Path(request["model"]), find_spec("pnnx")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError("pnnx is not installed")
    command = [str(Path(package.submodule_search_locations[0]) / "pnnx"), model.name, "fp16=0"]
    done = subprocess.run(
        command, cwd=model.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    files = [str(model.with_name(f"{model.stem.replace('-', '_')}.ncnn.{kind}")) for kind in ("param", "bin")]
    if done.returncode or not all(map(os.path.exists, files)):
        raise RuntimeError(f"pnnx ended with {done.returncode}")
    network = library.Net()
    network.opt.num_threads = request["threads"]
    for option in (
        "use_fp16_packed",
        "use_fp16_storage",
        "use_fp16_arithmetic",
        "use_bf16_storage",
        "use_vulkan_compute",
    ):
        setattr(network.opt, option, False)
    if network.load_param(files[0]) or network.load_model(files[1]):
        raise RuntimeError("it does not read what pnnx wrote")
    # ncnn knows no batches
    squeezed = [value[0] if value.ndim > 1 and len(value) == 1 else value for value in values.values()]
    given = [np.ascontiguousarray(v.astype(np.int32) if v.dtype == np.int64 else v) for v in squeezed]

    def run() -> list[np.ndarray]:
        extractor = network.create_extractor()
        for k, value in enumerate(given):
            extractor.input(f"in{k}", library.Mat(value))
        extracted = [extractor.extract(f"out{k}") for k in range(len(request["outputs"]))]
        if any(failed for failed, _ in extracted):
            raise RuntimeError("it stops in the middle")
        return [np.array(mat) for _, mat in extracted]

    return run


LIBRARIES: dict[str, Callable[[dict[str, Any], Arrays], Run]] = {
    f.__name__: f for f in (lfopt, onnxruntime, openvino, mnn, ncnn)
}


def timed(run: Run, times: int) -> dict[str, list[float]]:
    """Seconds of so many runs, after one that is not timed; of fewer, where these took long."""
    run()
    wall: list[float] = []
    cpu: list[float] = []
    while len(wall) < times and sum(wall) < LONG:
        started, busy = time.perf_counter(), time.process_time()
        run()
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - busy)
    return {"wall": wall, "cpu": cpu}


def main() -> None:
    """Answer until the input ends."""
    if sys.platform == "linux":  # end with the parent, which cannot let a stopped process know
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    load = LIBRARIES[sys.argv[1]]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print what they like
    run: Run = list  # of nothing
    for line in sys.stdin:
        request, answer = json.loads(line), {}
        try:
            if request["do"] == "load":
                with np.load(request["inputs"]) as given:
                    run = load(request, dict(given))
            elif request["do"] == "outputs":
                named = {str(k): value for k, value in enumerate(run())}
                np.savez(request["file"], **named)  # pyright: ignore[reportArgumentType]  (the stub has an option among the names)
            else:
                answer = timed(run, request["times"])
        except Exception as error:  # whatever a library raises, it refuses
            error_lines = str(error).strip().splitlines()
            answer = {"refused": (error_lines[-1] if error_lines else type(error).__name__)[:200]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
