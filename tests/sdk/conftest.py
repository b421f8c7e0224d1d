"""A gateway before the demo models, at a pace for tests, as the SDKs under test find it."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from gateway.app import Gateway
from gateway.demo.server import Pace, start_demo
from tests.sdk.routes import ROUTES, Route


@pytest.fixture(params=ROUTES, ids=str)
def route(request: pytest.FixtureRequest) -> Route:
    """Every demo model that calls tools, under every rule that suits it."""
    made: Route = request.param
    return made


@pytest.fixture
async def demo_gateway(gateway: Callable[..., Awaitable[Gateway]]) -> AsyncIterator[Callable[..., Awaitable[Gateway]]]:
    """Starts a gateway before the demo: `await demo_gateway(STRATEGY_RULES="*=native")`."""
    demo = await start_demo(Pace(tokens_per_s=0, pause_s=0))

    async def start(**environ: str) -> Gateway:
        return await gateway(demo.url, **environ)

    yield start
    await demo.close()
