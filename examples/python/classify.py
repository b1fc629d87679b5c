"""Compile a network once, and run it: python classify.py model.onnx [image.npy].

Without an image, the input is noise.
"""

from __future__ import annotations

import sys

import numpy as np

import lfopt

model = lfopt.compile(sys.argv[1])
taken = model.inputs[0]
rng = np.random.default_rng(0)
image = np.load(sys.argv[2]) if len(sys.argv) > 2 else rng.standard_normal(taken.shape).astype(taken.dtype)
(scores,) = model.run(image).values()
print(model)
for k in np.argsort(-scores.ravel())[:3].tolist():
    print(f"class {k}: {scores.ravel()[k]:.6g}")
