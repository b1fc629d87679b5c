"""From a plan to C and to command streams."""

from codegen.emit import emit_c
from codegen.source import CSource, Unsupported

__all__ = ["CSource", "Unsupported", "emit_c"]
