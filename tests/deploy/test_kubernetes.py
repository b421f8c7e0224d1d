"""The manifests of deploy/kubernetes: valid, joined to each other, and in step with the settings and the image."""

import copy
import re
import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from gateway.config.load import DECLARED, inspect
from gateway.config.sources import parse_env_file
from gateway.core.version import __version__
from gateway.telemetry.metrics import CATALOGUE
from tests.deploy.proxy import DEPLOY

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


FOLDER = DEPLOY / "kubernetes"

STAGES = sorted(path.name for path in (FOLDER / "overlays").iterdir())

VERSIONS = ["1.28", "1.31", "1.34", "1.37"]

SECRETS = "/etc/toolgate/secrets/"


def built(stage: str) -> list[Resource]:
    return build(FOLDER / "overlays" / stage)


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
        (said,) = documents(FOLDER / folder / "kustomization.yaml")
        used = {
            *said["resources"],
            *(env for each in said.get("configMapGenerator", []) for env in each.get("envs", [])),
        }
        there = {path.name for path in (FOLDER / folder).iterdir()} - {"kustomization.yaml"}
        assert there == {name for name in used if not name.startswith("..")}


@pytest.mark.parametrize("stage", STAGES)
def test_no_namespace_is_named(stage: str) -> None:
    assert [each for each in built(stage) if "namespace" in each["metadata"]] == []


@pytest.mark.parametrize("stage", STAGES)
def test_the_gateway_takes_the_settings(stage: str, tmp_path: Path) -> None:
    secret = documents(FOLDER / "secret.example.yaml")[0]["stringData"]
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
    (secret,) = documents(FOLDER / "secret.example.yaml")
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
    (monitor,) = documents(FOLDER / "components" / "servicemonitor" / "servicemonitor.yaml")
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
    text = (FOLDER / "secret.example.yaml").read_text()
    told = " ".join(line.lstrip("# ").rstrip("\\") for line in text.splitlines() if line.startswith("#"))
    named = {word.removeprefix("--from-file=") for word in shlex.split(told.replace("'", "")) if "--from-file=" in word}
    assert named == documents(FOLDER / "secret.example.yaml")[0]["stringData"].keys()
