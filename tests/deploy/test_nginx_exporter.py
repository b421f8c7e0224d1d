"""The exporter of deploy/docker: a real nginx tells it by syslog, and Prometheus' text says how its answers were."""

import asyncio
import re
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.deploy.proxy import DEPLOY, HAS_NGINX, running, temporary_paths
from tests.grafana.queries import DASHBOARDS, FOREIGN, filled, panels, selectors
from tests.support.client import get
from tests.support.processes import free_ports, takes_connections, until

EXPORTER = DEPLOY / "docker" / "nginx_exporter.py"

pytestmark = pytest.mark.skipif(not HAS_NGINX, reason="needs nginx")


def configured(folder: Path, port: int, syslog: int) -> Path:
    """The lines that the site of the composition has for it, and two answers."""
    site = (DEPLOY / "docker" / "nginx-site.conf").read_text()
    lines = "\n".join(re.findall(r"^(?:log_format|access_log) .*$", site, re.MULTILINE))
    assert "nginx-exporter:5140" in lines
    path = folder / "nginx.conf"
    path.write_text(
        f"master_process off; pid {folder}/pid; error_log stderr;\nevents {{}}\nhttp {{\n{temporary_paths(folder)}\n"
        f"{lines.replace('nginx-exporter:5140', f'127.0.0.1:{syslog}')}\n"
        f"server {{ listen 127.0.0.1:{port}; location / {{ return 200; }} location /gone {{ return 502; }} }}\n}}\n"
    )
    return path


async def test_answers_are_counted_by_method_and_status(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    port, syslog, metrics = free_ports(3)
    where = ("--syslog", f"127.0.0.1:{syslog}", "--metrics", f"127.0.0.1:{metrics}")
    process = await asyncio.create_subprocess_exec(sys.executable, EXPORTER, *where)
    try:
        await until(lambda: takes_connections(f"http://127.0.0.1:{metrics}"))
        async with running(tmp_path, configured(tmp_path, port, syslog), port):
            for path in ("/", "/", "/gone"):
                await get(client, f"http://127.0.0.1:{port}{path}")
            async with client.request("BREW", f"http://127.0.0.1:{port}/"):
                pass
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"<190>nginx: GET 200 and more", ("127.0.0.1", syslog))
        wanted = {
            'nginx_http_response_count_total{method="GET",status="200"}': "2.0",
            'nginx_http_response_count_total{method="GET",status="502"}': "1.0",
            'nginx_http_response_count_total{method="other",status="200"}': "1.0",
            "nginx_log_unread_total": "1.0",
        }
        async with asyncio.timeout(20):
            while True:
                told = (await get(client, f"http://127.0.0.1:{metrics}/metrics")).body.decode()
                seen = dict(line.rsplit(" ", 1) for line in told.splitlines() if line and not line.startswith("#"))
                if {name: seen.get(name) for name in wanted} == wanted:
                    break
                await asyncio.sleep(0.02)  # datagrams tell nobody that they have arrived
    finally:
        process.kill()
        await process.wait()


def test_the_dashboard_asks_for_what_it_has() -> None:
    (metric,) = FOREIGN
    assert metric == "nginx_http_response_count_total"
    found = [
        selector
        for panel in panels(DASHBOARDS["streaming"])
        for target in panel["targets"]
        for selector in selectors(filled(target["expr"]))
        if selector.metric == metric
    ]
    assert found
    assert all(selector.matchers.keys() <= {"job", "instance", "method", "status"} for selector in found)
