"""Contractions around a normalization whose statistics are made first, in panels of outputs."""
