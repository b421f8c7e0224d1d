"""Work that is done in turns."""

import pytest

from strategies.text.turns import LONG, scanning, whole


@pytest.mark.parametrize("text", ['"' + "a" * 5 * LONG + '"', "[" + "1, " * 2 * LONG + "1]"])
def test_a_long_text_is_scanned_in_turns(text: str) -> None:
    assert sum(1 for _ in scanning(text, 0, 64)) >= len(text) // LONG - 1
    assert whole(scanning(text, 0, 64)).is_done
