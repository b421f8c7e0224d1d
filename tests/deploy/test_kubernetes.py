"""The manifests of deploy/kubernetes: valid, joined to each other, and in step with the settings and the image."""

import copy
import re
import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from gateway.config.load import DECLARED, inspect
from gateway.core.version import __version__
from gateway.telemetry.metrics import CATALOGUE
from tests.deploy.kustomize import Resource, build, documents, find
from tests.deploy.proxy import DEPLOY

FOLDER = DEPLOY / "kubernetes"
STAGES = sorted(path.name for path in (FOLDER / "overlays").iterdir())
VERSIONS = ["1.28", "1.31", "1.34", "1.37"]
SECRETS = "/etc/toolgate/secrets/"

pytestmark = pytest.mark.parametrize("stage", STAGES)


def built(stage: str) -> list[Resource]:
    return build(FOLDER / "overlays" / stage)


def pod(stage: str) -> dict[str, Any]:
    return dict(find(built(stage), "Deployment")["spec"]["template"]["spec"])


def container(stage: str) -> dict[str, Any]:
    (only,) = pod(stage)["containers"]
    return dict(only)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(stage: str, version: str) -> None:
    for resource in built(stage):
        kubernetes_validate.validate(resource, version, strict=True)


def test_a_misspelt_probe_would_be_found(stage: str) -> None:
    deployment = copy.deepcopy(find(built(stage), "Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


def test_every_file_is_used(stage: str) -> None:
    for folder in ("base", "components/servicemonitor", f"overlays/{stage}"):
        (said,) = documents(FOLDER / folder / "kustomization.yaml")
        used = {
            *said["resources"],
            *(env for each in said.get("configMapGenerator", []) for env in each.get("envs", [])),
        }
        there = {path.name for path in (FOLDER / folder).iterdir()} - {"kustomization.yaml"}
        assert there == {name for name in used if not name.startswith("..")}


def test_no_namespace_is_named(stage: str) -> None:
    assert [each for each in built(stage) if "namespace" in each["metadata"]] == []


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


def test_a_pod_has_time_to_drain(stage: str) -> None:
    pause = float(container(stage)["lifecycle"]["preStop"]["exec"]["command"][1])
    drain = float(find(built(stage), "ConfigMap")["data"]["GATEWAY_DRAIN_S"])
    assert pod(stage)["terminationGracePeriodSeconds"] >= pause + drain + 10


def test_liveness_does_not_depend_on_others(stage: str) -> None:
    probes = {name: container(stage)[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness", "startup")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "liveness": "/healthz",
        "readiness": "/readyz",
        "startup": "/healthz",
    }
    assert {probe["port"] for probe in probes.values()} == {"http"}


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


def test_pods_are_added_by_a_metric_that_exists(stage: str) -> None:
    scaler = find(built(stage), "HorizontalPodAutoscaler")["spec"]
    (metric,) = [each["pods"]["metric"]["name"] for each in scaler["metrics"]]
    assert [each.kind for each in CATALOGUE if each.name == metric] == ["gauge"]
    assert scaler["minReplicas"] >= 2
    assert "replicas" not in find(built(stage), "Deployment")["spec"]


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


def test_the_secret_is_made_as_it_is_told(stage: str) -> None:
    text = (FOLDER / "secret.example.yaml").read_text()
    told = " ".join(line.lstrip("# ").rstrip("\\") for line in text.splitlines() if line.startswith("#"))
    named = {word.removeprefix("--from-file=") for word in shlex.split(told.replace("'", "")) if "--from-file=" in word}
    assert named == documents(FOLDER / "secret.example.yaml")[0]["stringData"].keys()
