"""Checks of a plan: a cost model, an interpreter of its steps, and an independent recount of its claims."""
