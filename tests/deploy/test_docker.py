"""The image and the composition of deploy/docker, as far as they can be judged without a daemon."""

import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]

from gateway.cli.root import cli
from gateway.config.load import inspect
from gateway.config.sources import parse_env_file
from gateway.core.version import __version__
from tests.deploy.proxy import DEPLOY, HAS_NGINX, NGINX, certificate, configure, replace_once
from tests.support.processes import free_ports

FOLDER = DEPLOY / "docker"
ROOT = DEPLOY.parent
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
TOOLS = Path(sys.executable).parent
PROMTOOL = shutil.which("promtool")
MADE_BY_THE_OPERATOR = {"secrets", "tls"}


def composed() -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / "compose.yaml").read_text()))


def instructions(name: str) -> list[str]:
    """The arguments of every such instruction, continued lines joined."""
    return re.findall(rf"^{name} (.*)$", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)


def test_the_linter_finds_nothing() -> None:
    linted = subprocess.run([TOOLS / "hadolint", FOLDER / "Dockerfile"], capture_output=True, text=True, timeout=60)
    assert (linted.returncode, linted.stdout) == (0, "")


def test_the_image_runs_as_nobody_in_particular_and_can_be_read_only() -> None:
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", instructions("USER")[-1])
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(instructions("ENTRYPOINT")[-1]) == ["toolgate"]
    assert json.loads(instructions("CMD")[-1]) == ["serve"]
    assert instructions("VOLUME") == instructions("WORKDIR")[-1:]
    assert DOCKERFILE.count("\nFROM ") == 2


def test_the_health_check_is_a_command_of_ours() -> None:
    program, command, option = json.loads(instructions("HEALTHCHECK")[0].split(" CMD ")[1])
    assert program == "toolgate"
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    assert option in [name for parameter in found.params for name in parameter.opts]


def test_what_is_copied_is_there_and_reaches_the_builder() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    copied = [name for args in instructions("COPY") if "--from" not in args for name in args.split()[:-1]]
    assert {"gateway", "strategies", "pyproject.toml"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists()
        assert [rule for rule in rules if fnmatch(name, rule.lstrip("!"))][-1] == f"!{name}"


def test_labels_say_what_it_is() -> None:
    assert instructions("ARG")[1] == f"VERSION={__version__}"
    (labels,) = instructions("LABEL")
    for name in ("title", "description", "version", "revision", "licenses"):
        assert f"org.opencontainers.image.{name}=" in labels


def test_the_composition_is_valid() -> None:
    judged = subprocess.run(
        [TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", FOLDER / "compose.yaml"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert judged.returncode == 0, judged.stdout


def test_what_is_mounted_is_there() -> None:
    mounted = [each for service in composed()["services"].values() for each in service.get("volumes", [])]
    paths = [each.split(":")[0] for each in mounted if each.startswith(".")]
    assert len(paths) > 8
    missing = [path for path in paths if not (FOLDER / path).exists()]
    assert [path for path in missing if Path(path).parts[0] not in MADE_BY_THE_OPERATOR] == []
    named = {each.split(":")[0] for each in mounted if not each.startswith(".")}
    assert named == composed()["volumes"].keys()


@pytest.mark.parametrize("name", composed()["services"])
def test_containers_are_locked_and_pinned(name: str) -> None:
    service = composed()["services"][name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[a-z/-]+:v?\d[\w.-]+", service["image"])


def test_only_nginx_is_open_to_others() -> None:
    ports = {name: service["ports"] for name, service in composed()["services"].items() if "ports" in service}
    assert ports.pop("nginx") == ["80:80", "443:443"]
    assert all(port.startswith("127.0.0.1:") for each in ports.values() for port in each)
    assert composed()["services"]["redis"]["networks"] == ["inside"]
    assert composed()["networks"]["inside"]["internal"]


def test_the_gateway_takes_the_settings_and_has_time_to_drain(tmp_path: Path) -> None:
    for name in ("api-keys", "upstream-key"):
        (tmp_path / name).write_text("a-key\n")
    path = tmp_path / "toolgate.env"
    path.write_text((FOLDER / "toolgate.env").read_text().replace("/etc/toolgate/", f"{tmp_path}/"))
    service = composed()["services"]["toolgate"]
    environ = {name: value.replace("/run/secrets/", f"{tmp_path}/") for name, value in service["environment"].items()}
    image = dict(word.split("=", 1) for word in instructions("ENV")[0].split())
    settings, faults = inspect(image | environ | {"GATEWAY_ENV_FILE": str(path)})
    assert faults == []
    assert settings.warnings == ()
    assert settings.store_url == "redis://redis:6379/0"
    assert int(service["stop_grace_period"].rstrip("s")) >= settings.drain_s + 10


def test_what_the_image_sets_does_not_hide_the_file() -> None:
    given = parse_env_file((FOLDER / "toolgate.env").read_text(), [], path="toolgate.env")
    image = dict(word.split("=", 1) for word in instructions("ENV")[0].split())
    assert {name: value for name, value in image.items() if name in given and given[name] != value} == {}


@pytest.mark.skipif(not HAS_NGINX, reason="needs nginx")
def test_nginx_accepts_its_site_in_the_composition(tmp_path: Path) -> None:
    assert NGINX is not None
    path = configure(tmp_path, ["127.0.0.1:8080"], ports=free_ports(3))
    certificate(tmp_path)
    site = replace_once((FOLDER / "nginx-site.conf").read_text(), "toolgate:8080", "127.0.0.1:8080")
    site = replace_once(site, "nginx-exporter:5140", "127.0.0.1:5140")
    (tmp_path / "site.conf").write_text(site.replace("/etc/nginx/tls/toolgate", f"{tmp_path}/tls"))
    tested = subprocess.run([NGINX, "-t", "-c", str(path)], capture_output=True, text=True, timeout=30)
    assert tested.returncode == 0, tested.stderr


@pytest.mark.skipif(PROMTOOL is None and "TOOLGATE_CI" not in os.environ, reason="needs promtool")
def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    text = replace_once(
        (FOLDER / "prometheus.yml").read_text(), "/etc/prometheus", str(ROOT / "grafana" / "prometheus")
    )
    (tmp_path / "prometheus.yml").write_text(text)
    tested = subprocess.run(
        [PROMTOOL, "check", "config", str(tmp_path / "prometheus.yml")], capture_output=True, text=True, timeout=60
    )
    assert tested.returncode == 0, tested.stderr + tested.stdout
    assert "rule" in tested.stdout


def test_grafana_asks_the_same_source_by_another_address() -> None:
    shipped = (ROOT / "grafana" / "provisioning" / "datasources" / "prometheus.yaml").read_text()
    (own,) = yaml.safe_load((FOLDER / "grafana-datasource.yaml").read_text())["datasources"]
    (other,) = yaml.safe_load(shipped)["datasources"]
    assert {**other, "url": own["url"]} == own
    (provider,) = yaml.safe_load((ROOT / "grafana" / "provisioning" / "dashboards" / "toolgate.yaml").read_text())[
        "providers"
    ]
    mounts = [each.split(":")[1] for each in composed()["services"]["grafana"]["volumes"]]
    assert provider["options"]["path"] in mounts
