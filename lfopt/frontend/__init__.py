"""ONNX in, ONNX out."""

from lfopt.frontend.load import InputShapes, from_model, load
from lfopt.frontend.save import save, to_model

__all__ = ["InputShapes", "from_model", "load", "save", "to_model"]
