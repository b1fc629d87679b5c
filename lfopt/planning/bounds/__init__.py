"""Bounds on the DRAM bytes of whole schemes: what is known before a search."""
