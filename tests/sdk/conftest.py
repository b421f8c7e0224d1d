"""A gateway before the demo models, at a pace for tests, as the SDKs under test find it; and which models they ask."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from attrs import frozen

from gateway.app import Gateway
from gateway.demo.server import Pace, start_demo


@frozen(kw_only=True)
class Route:
    """A model that writes its calls in one way, and the rule under which it is asked."""

    model: str
    rules: str = ""

    def __str__(self) -> str:
        return f"{self.model} {self.rules.partition('=')[2] or 'table'}".replace(" ", "-")


ROUTES = [
    Route(model="demo-native"),
    Route(model="demo-native", rules="*=native"),
    Route(model="demo-xml"),
    Route(model="demo-xml", rules="*=xml_prompt"),
    Route(model="demo-hermes"),
    Route(model="demo-hermes", rules="*=xml_prompt:hermes"),
    Route(model="demo-json"),
]


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
