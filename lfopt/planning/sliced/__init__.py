"""Mode sliced: slices of channels between two contractions, their buffer, bytes and steps."""
