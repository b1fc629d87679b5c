"""From a plan to C and to command streams.

Importing it imports nothing: what runs generated code needs no generator.

C is made in passes over data. Lay out (`layout`, `aliasing`, `memory`): where maps lie, and how. Select
(`fusion_chains`, `select`, `kernels`): which operators become one function, and which kernel makes it, or why
none does (`loops` then). Render (`emit`, `writer`): the text of what was chosen.
"""
