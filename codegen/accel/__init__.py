"""Plans as command streams of the accelerator."""

from codegen.accel.encode import encode
from codegen.accel.maps import packed, unpacked

__all__ = ["encode", "packed", "unpacked"]
