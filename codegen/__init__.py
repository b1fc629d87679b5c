"""From a plan to C and to command streams."""

from codegen.emit import better_whole, emit_c
from codegen.source import CSource, Unsupported

__all__ = ["CSource", "Unsupported", "better_whole", "emit_c"]
