"""Emulate a program of the accelerator command by command, without cycles.

The bytes in DRAM, the bytes counted and the errors are those of the hardware.

The emulator knows the three queues and what their commands wait for, and can run them in orders that are as
unfortunate as the waits allow (`QueueOrder`): a program that lacks a wait then gives wrong results. With
`check=True` it proves more: every two commands of which one writes a word that the other touches are ordered
by waits. All memory on chip begins as random bytes, and lanes that hold no channel are written with random
bytes, so what reads them shows.

Words are those of the buffer (LANES bytes) unless said otherwise; factors and tables lie behind the buffer,
in words of their own.
"""

from hw_rtl.emulator.emulation import Emulation, emulate
from hw_rtl.emulator.errors import Hazard, ProgramError
from hw_rtl.emulator.scheduler import QueueOrder

__all__ = ["Emulation", "Hazard", "ProgramError", "QueueOrder", "emulate"]
