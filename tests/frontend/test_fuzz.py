"""Thousands of damaged models load, or are refused in one line."""

import pytest

from tests.frontend import fuzz


@pytest.mark.parametrize("first", [0, 1000])
def test_damaged_models_load_or_are_refused_in_one_line(first, tmp_path):
    assert fuzz.run(range(first, first + 1000), tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 110_000, 5000))
def test_many_more_damaged_models_load_or_are_refused_in_one_line(first, tmp_path):
    assert fuzz.run(range(first, first + 5000), tmp_path) == {}
