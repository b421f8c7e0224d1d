"""The service of systemd: understood to the last line, locked up, and in step with the settings it starts with."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.config.sources import parse_env_file
from tests.deploy.proxy import DEPLOY

UNIT = DEPLOY / "systemd" / "toolgate.service"
EXPOSURE = 20  # tenths: 2.0
ANALYZE = shutil.which("systemd-analyze")

needs_systemd = pytest.mark.skipif(ANALYZE is None and "TOOLGATE_CI" not in os.environ, reason="needs systemd-analyze")


def values(name: str) -> list[str]:
    """Every value of a directive, in order."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def value(name: str) -> str:
    (found,) = values(name)
    return str(found)


def verified(folder: Path, text: str) -> str:
    """What systemd-analyze says of the unit, its program taken for installed."""
    assert ANALYZE is not None
    path = folder / "toolgate.service"
    path.write_text(text.replace("/opt/toolgate/bin/toolgate", "/bin/true"))
    told = subprocess.run([ANALYZE, "verify", str(path)], capture_output=True, text=True, timeout=60)
    return "\n".join(line for line in told.stderr.splitlines() if "toolgate" in line)


@needs_systemd
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    assert verified(tmp_path, UNIT.read_text()) == ""


@needs_systemd
def test_a_misspelt_line_would_be_found(tmp_path: Path) -> None:
    assert "ProtectClok" in verified(tmp_path, UNIT.read_text().replace("ProtectClock", "ProtectClok"))


@needs_systemd
def test_exposure_is_low() -> None:
    assert ANALYZE is not None
    judged = subprocess.run(
        [ANALYZE, "security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", str(UNIT)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert judged.returncode == 0, judged.stdout.splitlines()[-1:]


def test_the_drain_fits_into_the_time_to_stop() -> None:
    for path in (DEPLOY / "env").glob("*.env"):
        drain = float(parse_env_file(path.read_text(), [], path=path.name)["GATEWAY_DRAIN_S"])
        assert float(value("TimeoutStopSec")) >= drain + 10


def test_the_files_of_the_settings_are_where_the_service_may_write() -> None:
    state, runtime = f"/var/lib/{value('StateDirectory')}/", f"/run/{value('RuntimeDirectory')}/"
    for path in (DEPLOY / "env").glob("*.env"):
        given = parse_env_file(path.read_text(), [], path=path.name)
        assert given["STORE_URL"].startswith(f"sqlite:///{state}")
        assert given["GATEWAY_PID_FILE"].startswith(runtime)


def test_the_service_says_how_it_is_started_stopped_and_reloaded() -> None:
    assert value("Type") == "notify"
    assert value("KillMode") == "mixed"
    assert value("ExecReload") == "/bin/kill -HUP $MAINPID"
    assert int(value("WatchdogSec")) > 0
    assert value("RestartPreventExitStatus") == "78"
    assert value("DynamicUser") == "yes"


def test_the_model_servers_key_is_no_environment_variable() -> None:
    assert values("Environment") == [
        "GATEWAY_ENV_FILE=/etc/toolgate/toolgate.env",
        "UPSTREAM_API_KEY_FILE=%d/upstream-key",
    ]
    assert value("LoadCredential").startswith("upstream-key:")
