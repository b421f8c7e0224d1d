"""As much of Kustomize as deploy/kubernetes uses: resources, components, generated ConfigMaps, images, patches of maps.

Whatever else a kustomization says is refused, so that nothing is taken for tested that is not.
"""

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gateway.config.sources import parse_env_file

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
