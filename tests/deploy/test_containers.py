"""The image as it is built and run, and the manifests that run it in a cluster."""

import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from gateway.cli.root import cli
from gateway.config.load import DECLARED, inspect
from gateway.config.sources import parse_env_file
from gateway.core.version import __version__
from gateway.telemetry.metrics import CATALOGUE
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


Resource = dict[str, Any]

KNOWN = {"apiVersion", "kind", "resources", "components", "configMapGenerator", "images", "patches"}


def documents(path: Path) -> list[Resource]:
    """Every document of a YAML file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def build(folder: Path) -> list[Resource]:
    """What `kubectl kustomize` makes of a folder, but for the hashes in names."""
    return _built(folder, [])


def find(resources: list[Resource], kind: str, name: str = "toolgate") -> Resource:
    """The one resource of this kind and name."""
    (found,) = [each for each in resources if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def _built(folder: Path, resources: list[Resource]) -> list[Resource]:
    (said,) = documents(folder / "kustomization.yaml")
    assert said.keys() <= KNOWN, f"{folder}: not understood: {said.keys() - KNOWN}"
    for name in said.get("resources", []):
        path = folder / name
        resources = _built(path, resources) if path.is_dir() else [*resources, *documents(path)]
    for name in said.get("components", []):
        resources = _built(folder / name, resources)
    for generator in said.get("configMapGenerator", []):
        resources = _generated(folder, generator, resources)
    for patch in said.get("patches", []):
        _patch(patch, resources)
    for image in said.get("images", []):
        _set_image(image, resources)
    names = [(each["kind"], each["metadata"]["name"]) for each in resources]
    assert len(set(names)) == len(names), f"{folder}: twice: {names}"
    return resources


def _generated(folder: Path, generator: dict[str, Any], resources: list[Resource]) -> list[Resource]:
    assert generator.keys() <= {"name", "behavior", "envs", "literals"}
    data: dict[str, str] = {}
    faults: list[str] = []
    for name in generator.get("envs", []):
        data |= parse_env_file((folder / name).read_text(), faults, path=name)
    data |= dict(literal.split("=", 1) for literal in generator.get("literals", []))
    assert faults == []
    match generator.get("behavior", "create"):
        case "create":
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data}
            return [*resources, made]
        case "merge":
            find(resources, "ConfigMap", generator["name"])["data"] |= data
            return resources
        case other:
            raise AssertionError(f"{folder}: not understood: {other}")


def _patch(said: dict[str, Any], resources: list[Resource]) -> None:
    patch = yaml.safe_load(said["patch"])
    target = said["target"]
    assert (patch["kind"], patch["metadata"]["name"]) == (target["kind"], target["name"])
    merged = find(resources, target["kind"], target["name"])
    assert merged["apiVersion"] == f"{target['group']}/{target['version']}" == patch["apiVersion"]
    _merge(merged, patch)


def _merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        assert key in into, f"a patch adds {key}, which nothing had"
        assert not isinstance(value, list), "lists are merged by rules that are not here"
        if isinstance(value, dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _set_image(image: dict[str, Any], resources: list[Resource]) -> None:
    used = [
        container
        for each in resources
        for container in each.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
        if container["image"] == image["name"]
    ]
    assert used, f"no container has the image {image['name']}"
    for container in used:
        container["image"] = f"{image.get('newName', image['name'])}:{image['newTag']}"


# --- The manifests of deploy/kubernetes: valid, joined to each other, and in step with the settings and the image


MANIFESTS = DEPLOY / "kubernetes"

STAGES = sorted(path.name for path in (MANIFESTS / "overlays").iterdir())

VERSIONS = ["1.28", "1.31", "1.34", "1.37"]

SECRETS = "/etc/toolgate/secrets/"


def built(stage: str) -> list[Resource]:
    return build(MANIFESTS / "overlays" / stage)


def pod(stage: str) -> dict[str, Any]:
    return dict(find(built(stage), "Deployment")["spec"]["template"]["spec"])


def container(stage: str) -> dict[str, Any]:
    (only,) = pod(stage)["containers"]
    return dict(only)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(stage: str, version: str) -> None:
    for resource in built(stage):
        kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("stage", STAGES)
def test_a_misspelt_probe_would_be_found(stage: str) -> None:
    deployment = copy.deepcopy(find(built(stage), "Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("stage", STAGES)
def test_every_file_is_used(stage: str) -> None:
    for folder in ("base", "components/servicemonitor", f"overlays/{stage}"):
        (said,) = documents(MANIFESTS / folder / "kustomization.yaml")
        used = {
            *said["resources"],
            *(env for each in said.get("configMapGenerator", []) for env in each.get("envs", [])),
        }
        there = {path.name for path in (MANIFESTS / folder).iterdir()} - {"kustomization.yaml"}
        assert there == {name for name in used if not name.startswith("..")}


@pytest.mark.parametrize("stage", STAGES)
def test_no_namespace_is_named(stage: str) -> None:
    assert [each for each in built(stage) if "namespace" in each["metadata"]] == []


@pytest.mark.parametrize("stage", STAGES)
def test_the_gateway_takes_the_settings(stage: str, tmp_path: Path) -> None:
    secret = documents(MANIFESTS / "secret.example.yaml")[0]["stringData"]
    for name, value in secret.items():
        (tmp_path / name).write_text(value)
    environ = dict(find(built(stage), "ConfigMap")["data"])
    environ |= {each["name"]: each["value"] for each in container(stage)["env"]}
    settings, faults = inspect({name: value.replace(SECRETS, f"{tmp_path}/") for name, value in environ.items()})
    assert faults == []
    assert settings.warnings == ()
    assert settings.transform_mode == stage.replace("-", "_")
    assert settings.store_url.startswith("rediss://")
    assert settings.host == settings.metrics_host == "0.0.0.0"  # noqa: S104 - a pod's own network


@pytest.mark.parametrize("stage", STAGES)
def test_the_secret_holds_what_the_settings_name(stage: str) -> None:
    files = {each["name"]: each["value"].removeprefix(SECRETS) for each in container(stage)["env"]}
    assert {name.removesuffix("_FILE") for name in files} <= {each.name for each in DECLARED if each.is_secret}
    (secret,) = documents(MANIFESTS / "secret.example.yaml")
    kubernetes_validate.validate(secret, VERSIONS[-1], strict=True)
    assert set(files.values()) == secret["stringData"].keys()
    assert [each["secret"]["secretName"] for each in pod(stage)["volumes"] if "secret" in each] == [
        secret["metadata"]["name"]
    ]
    (mount,) = [each for each in container(stage)["volumeMounts"] if each["name"] == "secrets"]
    assert f"{mount['mountPath']}/" == SECRETS


@pytest.mark.parametrize("stage", STAGES)
def test_ports_are_those_of_the_settings(stage: str) -> None:
    ports = {each["name"]: str(each["containerPort"]) for each in container(stage)["ports"]}
    data = find(built(stage), "ConfigMap")["data"]
    assert ports == {"http": data["GATEWAY_PORT"], "metrics": data["METRICS_PORT"]}
    assert {each["port"] for each in metric_rules(stage)} == {"http", "metrics"}
    targets = {each["metadata"]["name"]: each["spec"]["ports"][0]["targetPort"] for each in services(stage)}
    assert targets == {"toolgate": "http", "toolgate-metrics": "metrics"}


def services(stage: str) -> list[Resource]:
    return [each for each in built(stage) if each["kind"] == "Service"]


def metric_rules(stage: str) -> list[dict[str, Any]]:
    return [port for rule in find(built(stage), "NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]]


@pytest.mark.parametrize("stage", STAGES)
def test_everything_selects_the_pods(stage: str) -> None:
    resources = built(stage)
    labels = find(resources, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        find(resources, kind)["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget")
    ]
    selectors += [each["spec"]["selector"] for each in services(stage)]
    selectors += [find(resources, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]]
    selectors += [each["labelSelector"]["matchLabels"] for each in pod(stage)["topologySpreadConstraints"]]
    assert all(selector.items() <= labels.items() and selector for selector in selectors)


@pytest.mark.parametrize("stage", STAGES)
def test_a_pod_has_time_to_drain(stage: str) -> None:
    pause = float(container(stage)["lifecycle"]["preStop"]["exec"]["command"][1])
    drain = float(find(built(stage), "ConfigMap")["data"]["GATEWAY_DRAIN_S"])
    assert pod(stage)["terminationGracePeriodSeconds"] >= pause + drain + 10


@pytest.mark.parametrize("stage", STAGES)
def test_liveness_does_not_depend_on_others(stage: str) -> None:
    probes = {name: container(stage)[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness", "startup")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "liveness": "/healthz",
        "readiness": "/readyz",
        "startup": "/healthz",
    }
    assert {probe["port"] for probe in probes.values()} == {"http"}


@pytest.mark.parametrize("stage", STAGES)
def test_pods_keep_to_the_restricted_standard(stage: str) -> None:
    said, own = pod(stage)["securityContext"], container(stage)["securityContext"]
    assert said["runAsNonRoot"]
    assert said["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not own["allowPrivilegeEscalation"]
    assert own["readOnlyRootFilesystem"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert pod(stage)["enableServiceLinks"] is False
    assert pod(stage)["automountServiceAccountToken"] is False
    assert find(built(stage), "ServiceAccount")["automountServiceAccountToken"] is False


@pytest.mark.parametrize("stage", STAGES)
def test_the_pod_is_the_image(stage: str) -> None:
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    user = re.search(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE)
    assert user is not None
    assert (pod(stage)["securityContext"]["runAsUser"], pod(stage)["securityContext"]["runAsGroup"]) == (
        int(user[1]),
        int(user[2]),
    )
    assert container(stage)["image"].endswith(f"/toolgate:{__version__}")
    assert 'ENTRYPOINT ["toolgate"]' in dockerfile
    assert container(stage)["args"] == ["serve"]


@pytest.mark.parametrize("stage", STAGES)
def test_pods_are_added_by_a_metric_that_exists(stage: str) -> None:
    scaler = find(built(stage), "HorizontalPodAutoscaler")["spec"]
    (metric,) = [each["pods"]["metric"]["name"] for each in scaler["metrics"]]
    assert [each.kind for each in CATALOGUE if each.name == metric] == ["gauge"]
    assert scaler["minReplicas"] >= 2
    assert "replicas" not in find(built(stage), "Deployment")["spec"]


@pytest.mark.parametrize("stage", STAGES)
def test_the_monitor_finds_the_metrics(stage: str) -> None:
    (monitor,) = documents(MANIFESTS / "components" / "servicemonitor" / "servicemonitor.yaml")
    service = find(built(stage), "Service", "toolgate-metrics")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert (
        not monitor["spec"]["selector"]["matchLabels"].items()
        <= find(built(stage), "Service")["metadata"]["labels"].items()
    )
    assert [each["port"] for each in monitor["spec"]["endpoints"]] == [
        each["name"] for each in service["spec"]["ports"]
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_the_secret_is_made_as_it_is_told(stage: str) -> None:
    text = (MANIFESTS / "secret.example.yaml").read_text()
    told = " ".join(line.lstrip("# ").rstrip("\\") for line in text.splitlines() if line.startswith("#"))
    named = {word.removeprefix("--from-file=") for word in shlex.split(told.replace("'", "")) if "--from-file=" in word}
    assert named == documents(MANIFESTS / "secret.example.yaml")[0]["stringData"].keys()
