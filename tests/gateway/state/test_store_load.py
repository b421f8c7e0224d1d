"""The command that puts SQLite under load says what it is for, in little."""

from pathlib import Path

import pytest

from tests.bench.store_load import Load


@pytest.mark.long
async def test_no_record_is_lost_while_two_workers_share_a_file(tmp_path: Path) -> None:
    load = Load(seconds=5, rate=100)
    await load.run(tmp_path)
    assert len(load.ids) == 500
    assert load.is_whole, load.told()
