"""The manifest of a command stream: what a driver must know to run it, in 32-bit little-endian words.

A header, then one entry for each input of the network, then one for each output, in the order of the network.
Program and constants are files of their own. Checksums are Adler-32.
"""

from __future__ import annotations

from lfopt.isa.tables import Told

MAGIC = 0x314D464C  # "LFM1"


class Header(Told):
    """Words of the header, by their number."""

    MAGIC = 0, "LFM1"
    CHECKSUM = 1, "of everything behind this word"
    BYTES = 2, "of the manifest"
    ISA = 3, "as the register of this name"
    LANES = 4, "channels side by side that the program is for"
    BUFFER_BYTES = 5, "of the buffer that the program needs"
    MEMORY_BYTES = 6, "of DRAM, from address 0 on; program, constants and maps lie in it in this order"
    PROGRAM_ADDRESS = 7, "where the program goes"
    PROGRAM_BYTES = 8, "of the program; whole words"
    PROGRAM_CHECKSUM = 9, "of the program"
    CONSTANTS_ADDRESS = 10, "where the constants go"
    CONSTANTS_BYTES = 11, "of the constants"
    CONSTANTS_CHECKSUM = 12, "of the constants"
    MAPS_ADDRESS = 13, "where maps begin: all that the program may write, up to MEMORY_BYTES"
    COMMANDS = 14, "loads, stores and computations that one run completes"
    INPUTS = 15, "inputs of the network"
    OUTPUTS = 16, "outputs of the network"


class MapEntry(Told):
    """Words of an input or output, by their number."""

    ADDRESS = 0, "of the first byte; a multiple of a beat"
    CHANNELS = 1, "how many"
    ROWS = 2, "how many"
    COLUMNS = 3, "how many"
    ROW_BYTES = 4, "from one row to the next"
    SIGNED = 5, "1: int8, 0: uint8"
