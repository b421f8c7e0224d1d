"""nginx as deploy/nginx/toolgate.conf sets it up, on free ports and with its files in a folder of the test's."""

import asyncio
import getpass
import json
import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.support.processes import free_ports

DEPLOY = Path(__file__).parents[2] / "deploy"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
HAS_NGINX = NGINX is not None or "TOOLGATE_CI" in os.environ
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@frozen(kw_only=True)
class Proxy:
    """A running nginx."""

    url: str
    plain_url: str
    status_url: str
    folder: Path
    process: asyncio.subprocess.Process

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def trusted(self) -> ssl.SSLContext:
        """What a client needs to believe this nginx."""
        return ssl.create_default_context(cafile=str(self.folder / "tls.crt"))

    async def reload(self) -> None:
        """Read the configuration anew, and wait until the new workers are there."""
        log = self.folder / "error.log"
        before = log.read_text().count("start worker process ")
        self.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(10):
            while True:
                written = log.read_text()
                if "gracefully shutting down" in written and written.count("start worker process ") > before:
                    return
                await asyncio.sleep(0.02)  # nginx tells its log alone

    async def logged(self, request_id: str) -> dict[str, Any]:
        """The line of the access log about a request, once it is written."""
        async with asyncio.timeout(10):
            while True:
                for line in (self.folder / "access.log").read_text().splitlines():
                    if request_id in line and (found := json.loads(line)):
                        return dict(found)
                await asyncio.sleep(0.05)  # the log is written late on purpose, and tells nobody


def replace_once(text: str, old: str, new: str) -> str:
    """The text with its one `old` replaced; the test fails when the file no longer holds it."""
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    return text.replace(old, new)


def certificate(folder: Path) -> None:
    """A self-signed certificate for this machine."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")),
        ],
        check=True,
        capture_output=True,
        timeout=30,
    )


def temporary_paths(folder: Path) -> str:
    """What keeps nginx out of the folders of another one."""
    return "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in _TEMPORARY)


def site(folder: Path, gateways: list[str], *, more: str = "") -> str:
    """site.conf for a test: as shipped, with the test's gateways and certificate."""
    text = (DEPLOY / "nginx" / "site.conf").read_text()
    servers = "\n".join(f"server {each.removeprefix('http://')} max_fails=2 fail_timeout=5s;" for each in gateways)
    text = replace_once(text, "    server 127.0.0.1:8080 max_fails=2 fail_timeout=5s;\n", servers + "\n")
    for kind in ("crt", "key"):
        text = replace_once(text, f"/etc/nginx/tls/toolgate.{kind}", f"{folder}/tls.{kind}")
    return f"{text}\n{temporary_paths(folder)}\n{more}\n"


def configure(folder: Path, gateways: list[str], *, ports: list[int], more: str = "") -> Path:
    """Write the configuration as shipped, with ports and paths of the test's; returns its path."""
    text = (DEPLOY / "nginx" / "toolgate.conf").read_text()
    for old, new in {
        "user www-data;": f"user {getpass.getuser()};",
        "pid /run/nginx.pid;": f"pid {folder}/nginx.pid;",
        "error_log /var/log/nginx/error.log warn;": f"error_log {folder}/error.log info;",
        "access_log /var/log/nginx/toolgate.log ": f"access_log {folder}/access.log ",
        "worker_processes auto;": "worker_processes 1;",
        "listen 80;": f"listen 127.0.0.1:{ports[0]};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{ports[1]} ssl http2;",
        "listen 127.0.0.1:8081;": f"listen 127.0.0.1:{ports[2]};",
    }.items():
        text = replace_once(text, old, new)
    if not (folder / "tls.crt").exists():
        certificate(folder)
    path = folder / "toolgate.conf"
    path.write_text(text)
    (folder / "site.conf").write_text(site(folder, gateways, more=more))
    return path


@asynccontextmanager
async def nginx(
    folder: Path, *gateways: str, more: str = "", changes: Mapping[str, str] | None = None
) -> AsyncIterator[Proxy]:
    """nginx before these gateways; `more` is added to its site, `changes` are made in the rest."""
    ports = free_ports(3)
    path = configure(folder, list(gateways), ports=ports, more=more)
    for old, new in (changes or {}).items():
        path.write_text(replace_once(path.read_text(), old, new))
    async with running(folder, path, ports[1]) as process:
        yield Proxy(
            url=f"https://localhost:{ports[1]}",
            plain_url=f"http://127.0.0.1:{ports[0]}",
            status_url=f"http://127.0.0.1:{ports[2]}",
            folder=folder,
            process=process,
        )


@asynccontextmanager
async def running(folder: Path, path: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """nginx under the configuration at `path`, as soon as it takes connections on a port."""
    assert NGINX is not None
    process = await asyncio.create_subprocess_exec(
        *(NGINX, "-p", str(folder), "-c", str(path), "-g", "daemon off;"), stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(20):
            while not await _answers(port):
                assert process.returncode is None, (await process.communicate())[1].decode()
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        await asyncio.sleep(0.02)  # the process is starting: there is nothing else to wait for
        return False
    writer.close()
    await writer.wait_closed()
    return True
