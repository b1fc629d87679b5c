"""Searches over fusion schemes. Each is given a `Problem`: a dataflow and callables that price a group."""
