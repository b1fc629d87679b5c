"""Plans as command streams of the accelerator."""

from codegen.accel.encode import check, encode, origins
from codegen.accel.maps import ALIGN, memory_map, packed, unpacked

__all__ = ["ALIGN", "check", "encode", "memory_map", "origins", "packed", "unpacked"]
