"""TODO."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.mapping.operations import Lines
from strategies.mapping.search_replace import CLINE_BLOCKS, ROO_BLOCKS, Blocks
from tests.strategies.mapping.test_client_arguments import LINES


@pytest.mark.parametrize("blocks", [ROO_BLOCKS, CLINE_BLOCKS], ids=["roo", "cline"])
@given(st.lists(st.builds(Lines, st.just("f"), LINES, LINES | st.just(())), min_size=1, max_size=3))
def test_written_blocks_are_read_as_they_were(blocks: Blocks, changes: list[Lines]) -> None:
    text = blocks.write(changes)
    if isinstance(text, str):
        assert blocks.read("f", text) == tuple(map(blocks.trim, changes))
