"""What `toolgate doctor` looks at; every check ends by itself, within seconds, with words for whoever runs it."""

import asyncio
import errno
import os
import resource
import shutil
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

from gateway.cli.run.doctor import Finding, probe
from gateway.config.load import Settings
from gateway.core.addresses import store_address
from gateway.core.errors import GatewayError
from gateway.core.origins import is_loopback
from gateway.core.ports import StoreError
from gateway.front.connection import KEEPALIVE_TIMEOUT_S
from gateway.front.listening import cannot_listen
from gateway.process.lanes import open_lanes
from gateway.request.servers import Upstream, upstreams_of
from gateway.state.opening import open_store
from gateway.upstream.look import look_at, wires_of

__all__ = ["examine"]

STORE_LONGEST_S = 10.0
CLOCK_WARNING_S = 30.0
CLOCK_FAULT_S = 600.0
SPARE_DESCRIPTORS = 128
"""For the store, logs, metrics and idle connections."""


def examine(settings: Settings) -> list[Finding]:
    """Every check, in the order in which a request meets what it looks at."""
    return [*_listening(settings), *_door(settings), *asyncio.run(_reached(settings)), *_process(settings)]


# Ports ------------------------------------------------------------------------------------------------------------


def _listening(settings: Settings) -> Iterator[Finding]:
    found = probe(settings) if settings.port else None
    if found is None:
        yield Finding(about="port", level="ok", message="any free one will be taken")
    elif found.level == "ok":
        yield found
        yield Finding(
            about="keep-alive",
            level="ok",
            message=f"idle connections are kept for {KEEPALIVE_TIMEOUT_S:g} s",
            advice="a proxy in front keeps its own for less: nginx with keepalive_timeout 60s",
        )
        return  # its other ports are taken too, by itself
    else:
        # By binding, not by connecting: what does not answer may still hold the port.
        yield _port("port", "GATEWAY", settings.host, settings.port, found.message)
    if settings.metrics_port:
        for number in range(settings.metrics_port, min(settings.metrics_port + settings.workers, 65536)):
            yield _port("metrics", "METRICS", settings.metrics_host, number, "")


def _door(settings: Settings) -> Iterator[Finding]:
    """Without keys a browser's pages are kept out, and so may be what a proxy sends."""
    if not settings.api_keys.is_open:
        return
    names = ", ".join(("localhost", "127.0.0.0/8", "[::1]", *map(str, settings.allowed_hosts)))
    if is_loopback(settings.host) or settings.allowed_hosts:
        message = f"no keys are asked for: only requests to {names} are answered, and no pages of other sites"
        advice = "behind a proxy that passes the clients' Host on, set GATEWAY_API_KEYS, or that name in "
        yield Finding(about="door", level="ok", message=message, advice=advice + "GATEWAY_ALLOWED_HOSTS")
    else:
        message = f"no keys are asked for, and whoever reaches {settings.host} is answered, under any name"
        advice = "set GATEWAY_API_KEYS; or GATEWAY_ALLOWED_HOSTS, which keeps out pages whose names lead here"
        yield Finding(about="door", level="warning", message=message, advice=advice)


def _port(about: str, whose: Literal["GATEWAY", "METRICS"], host: str, port: int, otherwise: str) -> Finding:
    where = f"{host}:{port}"
    try:
        open_lanes(host, port, 1).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"{where} is taken" + (f" ({otherwise})" if otherwise else "")
            return Finding(about=about, level="fault", message=message, advice=f"free it, or set {whose}_PORT")
        message = cannot_listen(error, whose, host, port) or f"{where}: {error.strerror}"
        return Finding(about=about, level="fault", message=message, advice="see `toolgate settings`")
    return Finding(about=about, level="ok", message=f"{where} is free; no gateway runs there yet")


# What is reached over a network -----------------------------------------------------------------------------------


async def _reached(settings: Settings) -> list[Finding]:
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(_upstream(each)) for each in upstreams_of(settings, None).values()]
        store = group.create_task(_store(settings))
    if settings.is_demo and settings.config_file is None:
        demo = Finding(about="upstream", level="ok", message="the embedded demo; set UPSTREAM_URL for a real one")
        return [demo, *store.result()]
    return [*(finding for each in asking for finding in each.result()), *store.result()]


async def _upstream(upstream: Upstream) -> list[Finding]:
    # Side by side: of a server that says nothing each would wait for its own time.
    wires, seen = await asyncio.gather(wires_of(upstream), look_at(upstream))
    found = Finding(about="upstream", level=seen.level, message=seen.message, advice=seen.advice)
    return [found, *_wires(upstream, wires), *_clock(seen.date)]


def _wires(upstream: Upstream, wires: tuple[str, ...] | None) -> Iterator[Finding]:
    """What clients of Messages and Responses can expect; all of them are answered, whatever the server speaks."""
    if wires is not None:
        advice = "" if wires == (upstream.row.wire,) else "requests in these are sent as they come where none is mended"
        yield Finding(about="wires", level="ok", message=f"{upstream.name} speaks {', '.join(wires)}", advice=advice)


def _clock(date: str | None) -> Iterator[Finding]:
    """The model server's clock is another opinion; keys that end, and records that are kept, go by ours."""
    try:
        theirs = parsedate_to_datetime(date or "").timestamp()
    except (ValueError, OverflowError):
        return
    apart_s = abs(time.time() - theirs)
    level = "fault" if apart_s > CLOCK_FAULT_S else "warning" if apart_s > CLOCK_WARNING_S else "ok"
    advice = "" if level == "ok" else "keys that expire and the age of records go by this machine's clock: use NTP"
    message = f"{apart_s:.0f} s from the model server's"
    yield Finding(about="clock", level=level, message=message, advice=advice)  # type: ignore[arg-type]


async def _store(settings: Settings) -> list[Finding]:
    address = store_address(settings.store_url)
    if address.kind == "memory":
        return [Finding(about="store", level="ok", message="in memory; a restart forgets everything")]
    found = [] if address.file is None else list(_room(address.file, settings.store_max_bytes))
    if address.file is not None and not address.file.exists():
        return [*found, _new_file(address.file)]
    try:
        store = open_store(settings.store_url, prefix=settings.store_prefix, timeout_ms=settings.store_timeout_ms)
        async with asyncio.timeout(STORE_LONGEST_S):
            try:
                await store.open()
                # One that is full, or a replica, can be read and is of no use all the same.
                await store.put("doctor", b"", ttl_s=1.0)
            finally:
                await store.close()
    except (StoreError, ValueError, TimeoutError, OSError, GatewayError) as error:
        advice = "requests are served without it, but nothing is recorded and workers learn nothing from each other"
        message = f"{address.kind} cannot be used: {error or type(error).__name__}"
        return [*found, Finding(about="store", level="fault", message=message, advice=advice)]
    return [*found, Finding(about="store", level="ok", message=f"{address.kind} answers and can be written to")]


def _new_file(path: Path) -> Finding:
    """What can be said of it without making it."""
    folder = path.absolute().parent
    advice = "make it, and let the gateway's user write there"
    if not folder.is_dir():
        return Finding(about="store", level="fault", message=f"there is no folder {folder}", advice=advice)
    if not os.access(folder, os.W_OK | os.X_OK):
        message, advice = f"{folder} cannot be written to by this user", "let the gateway's user write there"
        return Finding(about="store", level="fault", message=message, advice=advice)
    return Finding(about="store", level="ok", message=f"{path} will be made at the first start")


def _room(path: Path, wanted: int) -> Iterator[Finding]:
    folder = path.absolute().parent
    free = shutil.disk_usage(folder).free if folder.is_dir() else wanted
    if free < wanted:
        message = f"{folder} has {free >> 20} MiB left, records may take {wanted >> 20} MiB"
        yield Finding(about="store", level="warning", message=message, advice="make room, or lower STORE_MAX_BYTES")


# The process ------------------------------------------------------------------------------------------------------


def _process(settings: Settings) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Two for each request: the client's connection and the model server's.
    wanted = 2 * -(-settings.max_concurrency // settings.workers) + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        message = f"{soft} file descriptors per process; GATEWAY_MAX_CONCURRENCY may take {wanted}"
        advice = "raise `ulimit -n` (LimitNOFILE= in systemd), or lower GATEWAY_MAX_CONCURRENCY"
        if hard != soft:
            advice += f"; up to {hard} are allowed"
        yield Finding(about="descriptors", level="warning", message=message, advice=advice)
    else:
        yield Finding(about="descriptors", level="ok", message=f"{soft} per process, {wanted} may be needed")
