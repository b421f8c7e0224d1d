"""`toolgate inspect`: a page that shows what became of each answer, in a browser on this machine."""

import asyncio
import getpass
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click

from gateway.cli.store import effective_settings
from gateway.config.load import Settings
from gateway.core.addresses import store_address
from gateway.core.ports import Store, StoreError
from gateway.process.exits import EXIT_FAILED, EXIT_SETTINGS, EXIT_UNREACHABLE
from gateway.report.words import visible

__all__ = ["inspect", "loopback", "serve_page"]

PORT = 8790
_PERIODS = ("5m", "1h", "24h", "7d")
_LOOPBACK = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "::1": "::1", "[::1]": "::1"}
_EVERYWHERE = frozenset({"0.0.0.0", "::", "*", ""})  # noqa: S104 - what is refused
_PATIENCE_MS = 2000
_WAIT_S = 0.5


@click.command(short_help="Show in a browser what became of each answer.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; loopback alone.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"Port to listen on; {PORT}, or the next free one.")
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.option("--read-only", is_flag=True, help="Write nothing: no labels, no decisions.")
@click.option("--since", type=click.Choice(_PERIODS), default="1h", show_default=True, help="Period of the figures.")
@click.option(
    "--token-file", type=click.Path(dir_okay=False), help="Write the address with its key here, for a service."
)
@click.pass_context
def inspect(
    context: click.Context,
    host: str,
    port: int | None,
    no_open: bool,
    read_only: bool,
    since: str,
    token_file: str | None,
) -> None:
    """Show in a browser what the model wrote, what the client got, and why, a second after it happened.

    It is a process of its own over the store that STORE_URL names; the gateway's ports have no part in it. The address
    that it prints holds a key, which is good once and for five minutes.

    \b
    Examples:
      toolgate inspect
      toolgate inspect --port 9100 --no-open --read-only
      STORE_URL=redis://127.0.0.1:6379/0 toolgate inspect --since 24h

    Exit codes: 0 ended by Ctrl-C, 1 no port is free, 5 the store cannot be read, 78 a fault in the settings.
    """
    settings = effective_settings()
    address = loopback(host, port or PORT)
    if address is None:
        context.exit(EXIT_SETTINGS)
    if store_address(settings.store_url).kind == "memory":
        click.echo(
            "STORE_URL is memory://, which lives inside the gateway's own process: nothing outside can read it. Give "
            "the gateway and this command STORE_URL=sqlite:///toolgate.db.",
            err=True,
        )
        context.exit(EXIT_UNREACHABLE)
    code = asyncio.run(
        serve_page(
            settings,
            host=address,
            port=PORT if port is None else port,
            is_fixed=port is not None and port != 0,
            read_only=read_only,
            since=since,
            opens=not no_open and sys.stderr.isatty(),
            token_file=token_file,
        )
    )
    context.exit(code)


def loopback(host: str, port: int) -> str | None:
    """The address to listen on; `None`, and what to do instead, for one that others can reach."""
    found = _LOOPBACK.get(host)
    if found is None:
        name = socket.gethostname() if host in _EVERYWHERE else host
        click.echo(
            f"fault: --host: {visible(host)} can be reached from elsewhere, and the page is for this machine alone. "
            f"From another machine: ssh -L {port}:127.0.0.1:{port} {visible(name)}, and open the printed address "
            "there.",
            err=True,
        )
    return found


async def serve_page(
    settings: Settings,
    *,
    host: str,
    port: int,
    is_fixed: bool,
    read_only: bool = False,
    since: str = "1h",
    opens: bool = False,
    token_file: str | None = None,
    handles_signals: bool = True,
) -> int:
    """Until it is told to end; says the exit code."""
    from gateway.inspector.door import Door
    from gateway.inspector.server import Inspector, running, sockets

    try:
        listening = sockets(host, port, is_fixed=is_fixed)
    except OSError as error:
        click.echo(f"--port: no port from {port} on is free on {host}: {error.strerror}", err=True)
        return EXIT_FAILED
    stopped = _stopping() if handles_signals else asyncio.Event()
    store = await _opened(settings, stopped)
    if store is None:
        return 0 if stopped.is_set() else EXIT_UNREACHABLE
    taken = listening[0].getsockname()[1]
    door = Door(port=taken)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{taken}/?key={door.key}"
    writer = None if read_only else _store(settings, read_only=False)
    inspector = Inspector(store, settings, door, _who(), writer=writer, period=since)
    try:
        async with running(inspector, listening):
            click.echo(f"Inspector: {url}", err=True)
            if token_file is not None:
                _write_private(Path(token_file), url)
            if opens:
                # In a thread: a browser of the terminal holds up whoever starts it, and asks this very page.
                await asyncio.to_thread(_open, url)
            await stopped.wait()
    finally:
        await store.close()
        if writer is not None:
            await writer.close()
    return 0


def _store(settings: Settings, *, read_only: bool) -> Store:
    from gateway.state.opening import open_store

    timeout_ms = max(settings.store_timeout_ms, _PATIENCE_MS)
    return open_store(settings.store_url, prefix=settings.store_prefix, timeout_ms=timeout_ms, read_only=read_only)


async def _opened(settings: Settings, stopped: asyncio.Event) -> Store | None:
    """The store, only to be read; one that no gateway has begun yet is waited for."""
    file = store_address(settings.store_url).file
    has_said = False
    while not stopped.is_set():
        if file is not None and not file.is_file():
            if not has_said:
                click.echo(f"There is no store {file.absolute()} yet: waiting for a gateway to begin it.", err=True)
            has_said = True
        else:
            store = _store(settings, read_only=True)
            try:
                await store.open()
            except StoreError as error:
                await store.close()
                if not has_said:
                    click.echo(f"the store cannot be used: {error}", err=True)
                    return None
            else:
                return store
        with suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_S):
                await stopped.wait()
    return None


def _stopping() -> asyncio.Event:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    return stopped


def _write_private(path: Path, url: str) -> None:
    """The address for a service's own use; its owner alone may read it."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        # The mode above counts for a new file alone: one that is there keeps its own.
        os.fchmod(file.fileno(), 0o600)
        file.write(url + "\n")


def _open(url: str, opener: Callable[[str], bool] = webbrowser.open) -> None:
    with suppress(Exception):  # no browser is no fault: the address has been printed
        opener(url)


def _who() -> str:
    # In a container the user may have no entry, and so no name.
    try:
        return visible(getpass.getuser())
    except (OSError, KeyError, ImportError):
        return "operator"
