"""Places and steps that every mode makes: addresses, loops, limits, the multiply-accumulates executed."""
