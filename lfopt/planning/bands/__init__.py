"""Bands of rows and slices of channels: what each needs of every map, and of constants that pass."""
