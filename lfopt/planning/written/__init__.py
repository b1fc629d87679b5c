"""Nests as people write them: text, the rules that it must keep, parts that a constraint asks for."""
