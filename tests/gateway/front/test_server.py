"""The gateway's ports: what is answered without the model server."""

import asyncio
import threading

from aiohttp.test_utils import make_mocked_request

from gateway.front.server import _Exposition
from tests.support.processes import until


async def test_metrics_are_written_once_for_all_who_ask_meanwhile() -> None:
    class Telemetry:
        def __init__(self) -> None:
            self.written: list[str] = []
            self.go_on = threading.Event()

        def set(self, name: str, labels: dict[str, str], value: float) -> None:
            pass

        def settle(self) -> None:
            pass

        def render(self, accept: str) -> tuple[bytes, str]:
            self.written.append(accept)
            assert self.go_on.wait(20.0)
            return str(len(self.written)).encode(), "text/plain"

    telemetry = Telemetry()
    exposition = _Exposition(telemetry)  # type: ignore[arg-type]
    first = asyncio.ensure_future(exposition.answer(make_mocked_request("GET", "/metrics")))
    await until(lambda: telemetry.written)
    others = [asyncio.ensure_future(exposition.answer(make_mocked_request("GET", "/metrics"))) for _ in range(50)]
    await asyncio.sleep(0)
    others[0].cancel()
    telemetry.go_on.set()
    assert (await first).body == b"1"
    assert {(await each).body for each in others[1:]} == {b"2"}, "what came after it was asked for"
    assert (await exposition.answer(make_mocked_request("GET", "/metrics"))).body == b"3"
