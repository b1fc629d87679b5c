"""Groups in any mode: what they are, the bytes that they move, what they have in common with others."""
