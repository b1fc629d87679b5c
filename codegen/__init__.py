"""A plan as C for a CPU, in passes over data; `codegen.accel`: as a command stream.

Lay out (`layout`, `aliasing`, `memory`): where maps lie, and how. Select (`fusion_chains`, `select`, `kernels`): which operators become one function, and
which kernel makes it, or why none does (`loops` then). Render (`emit`, `writer`): the text of what was chosen.
"""
