"""PyTorch's tensors as NumPy's arrays and back, on the same memory where it is dense."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch
from torch import Tensor


def as_array(tensor: Tensor) -> np.ndarray:
    """(same shape and type) a CPU tensor in C order: its own memory where it is contiguous, else a copy."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if dense.dtype == torch.bfloat16:
        return dense.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return dense.numpy()


def as_tensor(array: np.ndarray) -> Tensor:
    """(same shape and type) a tensor on the memory of an array."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def type_of(tensor: Tensor) -> str:
    """Type and shape as lfopt writes them: float32 [1, 3, 224, 224]."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
