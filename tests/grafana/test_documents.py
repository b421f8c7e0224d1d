"""What is said and shown about the dashboards fits what is there."""

import re
import struct

import pytest
import yaml  # type: ignore[import-untyped]

from tests.grafana.queries import DASHBOARDS, ROOT

README = (ROOT / "README.md").read_text("utf-8")
MOST_BYTES = 150_000


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_dashboard_has_a_preview_that_is_told_to_be_one(name: str):
    picture = (ROOT / "previews" / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n")
    width, height = struct.unpack(">II", picture[16:24])
    assert width > 1000
    assert height > 1000
    assert len(picture) < MOST_BYTES
    assert f"previews/{name}.png" in README
    assert "They show what stands where, not how Grafana draws it." in README


def test_every_dashboard_has_a_heading_with_its_title():
    titles = [dashboard["title"].removeprefix("Toolgate / ") for dashboard in DASHBOARDS.values()]
    assert set(titles) == set(re.findall(r"^### (.+)$", README, re.MULTILINE))


def test_paths_that_are_copied_are_there():
    for path in re.findall(r"(?<![/\w])grafana/[\w./*-]+", README):
        assert list(ROOT.parent.glob(path.rstrip("./"))), path


def test_the_data_source_fits_the_scrapes_and_the_folder_the_copy():
    scrapes = yaml.safe_load((ROOT / "prometheus" / "prometheus.yml").read_text("utf-8"))
    source = yaml.safe_load((ROOT / "provisioning" / "datasources" / "prometheus.yaml").read_text("utf-8"))
    (only,) = source["datasources"]
    assert only["type"] == "prometheus"
    assert only["jsonData"]["timeInterval"] == scrapes["global"]["scrape_interval"]
    providers = yaml.safe_load((ROOT / "provisioning" / "dashboards" / "toolgate.yaml").read_text("utf-8"))["providers"]
    assert [provider["options"]["path"] for provider in providers] == ["/var/lib/grafana/dashboards/toolgate"]
    assert f"cp grafana/dashboards/*.json {providers[0]['options']['path']}/" in README
