"""Learned validity and graph explanations. Nothing lives here yet."""
