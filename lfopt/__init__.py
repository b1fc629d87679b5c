"""Layer-fusion optimizer for accelerators.

    import lfopt
    plan = lfopt.search("model.onnx", buffer="256KiB")  # the plan of least DRAM traffic, and how good it is
    lfopt.execute(plan)                                 # carry it out, and count every byte
    lfopt.report(plan, "report.html")                   # look at it
    lfopt.compile("model.onnx")(x)                      # run the network on this machine
    lfopt.compile(module)(x)                            # or a torch.nn.Module
    torch.compile(module, backend="lfopt")(x)           # the same by way of PyTorch

A name is imported when it is first asked for, so that importing lfopt costs nothing; type checkers read them
all in `__init__.pyi`. The names of `lfopt.ir` that are not listed are names of this package too.
"""

from importlib import import_module

_PLACES = {
    "lfopt.app.api": "check emit_c encode execute explain legal load load_plan pareto plan report search "
    "simplify simulate",
    "lfopt.app.compiled": "compile",
    "lfopt.app.front": "Front",
    "lfopt.app.front_data": "Advice Point",
    "lfopt.app.results": "Explained Planned",
    "lfopt.app.verify": "Verified",
    "lfopt.planning": "Limit",
    "search.result": "Result",
    "simulator.interpreter.execute": "Execution",
    "codegen.build": "CannotBuild",
    "codegen.runtime": "CannotRun Compiled",
    "lfopt.app.by_shape": "CompiledByShape",
    "lfopt.app.pytorch": "EagerFallback",
    "lfopt.app.session": "InferenceSession",
    "codegen.source": "CSource Unsupported",
    "lfopt.ir": (
        "CannotWrite CommandStream Cost DoesNotFit DramBytes Energy FusionScheme Graph Hardware "
        "FalsePlan InvalidConfig InvalidGraph InvalidModel InvalidPlan LfoptError MissingValues OpenShape "
        "Operator Plan PlannedGroup Report SearchRecord Tensor Totals UnsupportedModel Verdict"
    ),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names.split()}
_RENAMED = {"compile": "compile_model"}  # where a name would hide one of Python's own
__all__ = [*sorted(_MODULES), "__version__", "zoo"]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  (slow to import, seldom asked for)

        return version("lfopt")
    if name.startswith("__"):
        raise AttributeError(f"module 'lfopt' has no attribute {name!r}")
    from lfopt.app.wings import check_wings  # noqa: PLC0415  (importing lfopt imports nothing)

    check_wings()
    if name == "zoo":
        return import_module("lfopt.zoo")
    module = import_module(_MODULES.get(name, "lfopt.ir"))
    if name not in _MODULES and name not in module.__all__:
        raise AttributeError(f"module 'lfopt' has no attribute {name!r}")
    attribute = globals()[name] = getattr(module, _RENAMED.get(name, name))
    return attribute


def __dir__() -> list[str]:
    return sorted(__all__)
