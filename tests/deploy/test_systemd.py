"""The service of systemd: understood to the last line, locked up, and in step with the settings it starts with."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from gateway.config.load import Settings, inspect, reload
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


# --- The environment files of deploy/env are settings that the gateway takes, without a fault or a doubt


FILES = sorted((DEPLOY / "env").glob("*.env"))

PERCENT = 100


@pytest.fixture(autouse=True)
def keys(tmp_path: Path) -> None:
    """A key file as the guide tells to make one."""
    digest = hashlib.sha256(b"a key").hexdigest()
    (tmp_path / "api-keys").write_text(f"# the team\nsha256:{digest} expires=2099-01-31\n")


def loaded(path: Path, tmp_path: Path) -> tuple[Settings, list[str]]:
    copied = tmp_path / path.name
    copied.write_text(path.read_text().replace("/etc/toolgate/", f"{tmp_path}/"))
    return inspect({"GATEWAY_ENV_FILE": str(copied)})


def test_there_is_a_file_for_each_stage() -> None:
    assert [path.name for path in FILES] == ["canary.env", "dry-run.env", "full.env"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_gateway_takes_the_file(path: Path, tmp_path: Path) -> None:
    settings, faults = loaded(path, tmp_path)
    assert faults == []
    assert settings.warnings == ()
    assert settings.transform_mode == path.stem.replace("-", "_")
    assert settings.host == "127.0.0.1"
    assert not settings.api_keys.is_open


def test_no_shipped_deployment_stands_behind_a_proxy_without_keys_or_a_name() -> None:
    """What nginx or a Service passes on as `Host` would be refused."""
    shipped = [*FILES, DEPLOY / "docker" / "toolgate.env", DEPLOY / "kubernetes" / "base" / "deployment.yaml"]
    let_in = re.compile(r"^(?!\s*#).*\b(?:GATEWAY_API_KEYS(?:_FILE)?|GATEWAY_ALLOWED_HOSTS)\b", re.MULTILINE)
    assert [path.name for path in shipped if not let_in.search(path.read_text())] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_reload_takes_it_as_well(path: Path, tmp_path: Path) -> None:
    settings, _ = loaded(path, tmp_path)
    assert reload({"GATEWAY_ENV_FILE": str(tmp_path / path.name)}) == settings


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_line_has_its_reason(path: Path) -> None:
    """A comment stands before each group of settings, and no secret does."""
    assert re.search(r"^(?!#|[A-Z0-9_]+=\S+$).+", path.read_text(), re.MULTILINE) is None
    paragraphs = path.read_text().split("\n\n")
    assert all(paragraph.startswith("#") for paragraph in paragraphs)
    assert (
        not {"UPSTREAM_API_KEY", "GATEWAY_API_KEYS", "CANARY_SALT"}
        & parse_env_file(path.read_text(), [], path="").keys()
    )


def test_stages_differ_in_the_rollout_and_the_records_alone(tmp_path: Path) -> None:
    values = [parse_env_file(path.read_text(), [], path=path.name) for path in FILES]
    shared = {name for name in values[0] if all(each.get(name) == values[0][name] for each in values)}
    differing = {name for each in values for name in each} - shared
    prefixes = ("TRANSFORM_", "CANARY_", "ROLLOUT_", "ROLLBACK_", "DRY_RUN_", "AUDIT_", "TRUSTED_")
    assert {name for name in differing if not name.startswith(prefixes)} == set()
    assert {"STORE_URL", "KILL_SWITCH_FILE", "GATEWAY_PID_FILE", "METRICS_SD_FILE", "UPSTREAM_URL"} <= shared


def test_the_canary_begins_with_one_percent_and_is_judged(tmp_path: Path) -> None:
    settings, _ = loaded(DEPLOY / "env" / "canary.env", tmp_path)
    assert settings.canary_percent == 1 * PERCENT == settings.canary_steps[0]
    assert settings.rollout_auto == "rollback"
    assert settings.audit_bodies == "redacted"


def test_full_leaves_a_share_to_compare_with(tmp_path: Path) -> None:
    settings, _ = loaded(DEPLOY / "env" / "full.env", tmp_path)
    assert settings.canary_holdback_percent == 5 * PERCENT


def test_prometheus_looks_where_the_gateway_writes(tmp_path: Path) -> None:
    scrapes = yaml.safe_load((DEPLOY.parent / "grafana" / "prometheus" / "prometheus.yml").read_text())
    [job] = [each for each in scrapes["scrape_configs"] if each["job_name"] == "toolgate"]
    named = [file for each in job["file_sd_configs"] for file in each["files"]]
    assert named == [loaded(path, tmp_path)[0].metrics_sd_file for path in FILES[:1]]
