"""Independent recount of a plan from the network and its steps.

It covers legality, buffer and DRAM bytes, the DRAM map, baselines and the gap. Nothing here comes from the
planner, the search or the executor. What a plan and its recount share is `lfopt.ir` and the row rules of the
operator table; views, neighbourhoods, needs, rings and bytes are worked out again. Steps are not run one by
one: a step in loops is an arithmetic progression, and everything is checked for all of its runs at once. No
values are computed: that is what `simulator.interpreter.execute` is for.

What is recounted exactly, and what is only bounded:

* partition, connectivity, convexity, order of the groups, their modes: exactly.
* lbdf groups: buffer bytes and places, and which rows every step makes, exactly: the line-buffer schedule is
  run over the whole group, in bands as high as claimed.
* groups with steps, exactly: bytes by class, from the boxes. Parameters are loaded once, at the head, and
  those of several operators fit their store. Everything needed is loaded whole (just once in modes lbdf,
  resident and brr, weights as often as claimed), computed whole (just once but in mode brr, which may repeat)
  and stored just once; every input channel, or row that is folded, is added to every sum just once. Places
  lie below the buffer, end where the plan says, have slots of the size that is needed, and share bytes only
  one after the other. Each row that is read is on chip then, and so is the block of weights that is needed;
  where slots hold less than a row, the part of it that is needed.
* of groups with steps, only bounded: that no place (but in lbdf groups) has more slots than it needs; that no
  other tiling or number of bands moves fewer bytes; band rows of mode brr where the steps allow several;
  parts of rows that operators read whose axes `needs` does not know.
* operators that are read through: that each is one that only moves data, makes no output of the network, and
  moves nothing; what its readers load is counted there.
* groups without steps: opaque and excluded operators exactly; tiled groups of traffic `once` and `paper`
  exactly but for the buffer, which is bounded. Bytes of others are bounded from below by every tensor once,
  and reported as not recounted. Groups of more steps than can be walked are refused by name.
* DRAM map: names, roles, sizes and alignment exactly; that nothing overlaps while both are needed.
* baselines, totals, gap: exactly. That the lower bound is *proven* cannot be recounted; that it lies between
  the compulsory bytes and the plan's is checked.
"""

from simulator.recount.groups import not_an_epilogue
from simulator.recount.network import RecountNetwork
from simulator.recount.plan import Recount, recount
from simulator.recount.progressions import RecountStopped

__all__ = ["Recount", "RecountNetwork", "RecountStopped", "not_an_epilogue", "recount"]
