"""The nest: one description of how a fusion group runs, and what follows from it."""
