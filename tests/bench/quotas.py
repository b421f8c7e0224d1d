"""How far one Redis carries the limits of keys: `python -m tests.bench.quotas`.

What a decision costs the server is its own processor time, which others on the machine do not move.
"""

import asyncio
import tempfile
import time
from pathlib import Path

from gateway.core.errors import RateLimited
from gateway.core.rules import Quota
from gateway.state.opening import open_quotas
from tests.support.stores import RedisServer

DECISIONS = 20_000
AT_ONCE = 64
KEYS = 50


async def cpu_s(server: RedisServer) -> float:
    """The processor time that the server has used."""
    reader, writer = await asyncio.open_unix_connection(str(server.path))
    writer.write(b"*2\r\n$4\r\nINFO\r\n$3\r\ncpu\r\n")
    size = int((await reader.readline())[1:])
    shown = (await reader.readexactly(size + 2)).decode()
    writer.close()
    await writer.wait_closed()
    values = dict(line.split(":") for line in shown.splitlines() if ":" in line)
    return float(values["used_cpu_user"]) + float(values["used_cpu_sys"])


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = await RedisServer(Path(folder)).start()
        quotas = open_quotas(server.url, prefix="toolgate:", timeout_ms=5000)
        assert quotas is not None
        for name, quota in (("admitted", Quota(requests=10**6, tokens=10**9)), ("refused", Quota(requests=1))):
            left = iter(range(DECISIONS))

            async def ask(left=left, quota=quota, name=name) -> None:
                for number in left:
                    try:
                        await quotas.enter(f"{name}-{number % KEYS}", quota)
                    except RateLimited:
                        continue

            before, began = await cpu_s(server), time.perf_counter()
            await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
            seconds, used = time.perf_counter() - began, await cpu_s(server) - before
            print(
                f"{name}: {used / DECISIONS * 1e6:.0f} us of the server's processor a decision, "
                f"at most {DECISIONS / used:,.0f} a second; from one process here {DECISIONS / seconds:,.0f} a second"
            )
        await quotas.close()
        await server.close()


if __name__ == "__main__":
    asyncio.run(main())
