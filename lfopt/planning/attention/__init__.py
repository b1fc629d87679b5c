"""Attention that exceeds the buffer, in blocks of heads, queries and keys."""
