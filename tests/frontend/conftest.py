"""ONNX Runtime, the oracle, reads opsets newer than its own release."""

import os

os.environ.setdefault("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
