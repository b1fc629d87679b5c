"""Mode gated: a block around a barrier in two phases, its buffer, bytes and steps."""
