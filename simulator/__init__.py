"""What becomes of a plan: a model of what it costs, an interpreter that carries it out,
a recount that believes nothing of it.
"""
