"""What all attacks share: the arena, which looks at its gateway when the attack is over."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.attacks.arena import Arena
from tests.support.faulty_upstream import FaultyUpstream


@pytest.fixture
async def arena(gateway: Any, upstream: FaultyUpstream, client: Any, log: Any) -> AsyncIterator[Arena]:
    """A gateway under attack."""
    made = Arena(gateway=gateway, upstream=upstream, client=client, log=log)
    yield made
    await made.unharmed()
