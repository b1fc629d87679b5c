"""Helpers of these tests are plain modules beside them."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")  # onnxruntime, the oracle, then reads opsets newer than its own release
