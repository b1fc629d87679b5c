"""What lies in the slots of places, since when, and until when it is used."""

from __future__ import annotations

import pytest

from lfopt.ir import Box, Hardware, Place
from lfopt.ops.on_chip import Block, BufferContents, NotOnChip, Ring

SHAPE = (1, 2, 8, 3)  # 8 rows of 2 x 3 elements of 2 bytes: 12 bytes each


def rows(start: int, stop: int, columns: tuple[int, int] = (0, 3)) -> Box:
    return ((0, 1), (0, 2), (start, stop), columns)


def contents(*places: Place) -> BufferContents[Ring, Block]:
    return BufferContents(places, Hardware(1000), Ring, lives=True)


def load(chip: BufferContents[Ring, Block], step: int, box: Box, place: int, number: int) -> None:
    chip.now = step
    chip.put_rows(chip.layout("x", SHAPE, box, place), *box[2], number)


def test_a_slot_is_taken_until_its_row_is_read_for_the_last_time() -> None:
    chip = contents(Place("x", "map", 0, 2, 12))
    load(chip, 0, rows(0, 2), 0, 0)
    chip.now = 3
    assert [run for _, run in chip.find_rows("x", 0, 1)] == [(0, 0, 1)]
    load(chip, 5, rows(2, 3), 0, 2)
    chip.now = 6
    assert [run for _, run in chip.find_rows("x", 1, 3)] == [(1, 1, 1), (2, 0, 1)]
    assert sorted(chip.lives().tolist()) == [[0, 0, 3], [0, 0, 6], [0, 5, 6]]


def test_rows_are_found_whatever_slot_they_begin_in() -> None:
    chip = contents(Place("x", "map", 0, 3, 12))
    load(chip, 0, rows(4, 7), 0, 0)
    ((ring, run),) = chip.find_rows("x", 4, 7)
    assert (ring.shift, run) == (2, (4, 0, 3))
    with pytest.raises(NotOnChip, match="row 7 of 'x'") as missing:
        chip.find_rows("x", 5, 8)
    assert missing.value.row == 7


def test_what_shares_bytes_with_what_is_written_is_gone() -> None:
    chip = contents(Place("x", "map", 0, 2, 12), Place("w", "weight", 20, 1, 8))
    load(chip, 0, rows(0, 2), 0, 0)
    chip.now = 1
    chip.put_block(Block("w", ((0, 4),), 1, 0, 0), 8)
    assert [run for _, run in chip.rows_on_chip("x", 0, 2)] == [(0, 0, 1)]
    load(chip, 2, rows(1, 2), 0, 1)
    assert chip.blocks_on_chip("w") == []
    with pytest.raises(NotOnChip, match="constant 'w'"):
        chip.find_block("w", ((0, 1),))


def test_parts_of_a_row_join_while_there_is_room_and_are_one_life() -> None:
    chip = contents(Place("x", "map", 0, 1, 8))
    load(chip, 0, rows(0, 1, (0, 1)), 0, 0)
    load(chip, 4, rows(0, 1, (1, 2)), 0, 0)
    assert chip.find_rows("x", 0, 1, rows(0, 1, (0, 2)))
    load(chip, 6, rows(0, 1, (2, 3)), 0, 0)  # no room for three
    assert chip.rows_on_chip("x", 0, 1, rows(0, 1, (0, 2))) == []
    assert chip.lives().tolist() == [[0, 0, 6]]
