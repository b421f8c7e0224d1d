"""Values of settings as they are read, and as they are shown."""

import pytest

from gateway.config.declarations import Settings, describe
from gateway.config.declared.values import path_keys, shown_url
from gateway.telemetry.redaction import Redactor

KEY = "a1B2c3D4e5F6g7H8i9J0"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://gateway.example/v1/{KEY}/openai", "https://gateway.example/v1/********/openai"),
        (f"https://gateway.example/sk-{KEY}/v1", "https://gateway.example/sk-********/v1"),
        (f"https://{KEY}.example/v1", f"https://{KEY}.example/v1"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        (
            "https://example.org/openai/deployments/gpt-4o-mini-2024-07-18",
            "https://example.org/openai/deployments/gpt-4o-mini-2024-07-18",
        ),
        ("https://example.org/internationalization/v1", "https://example.org/internationalization/v1"),
    ],
)
def test_a_key_in_an_address_is_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_key_in_the_address_of_the_model_server_is_a_secret() -> None:
    url = f"https://gateway.example/v1/{KEY}/openai"
    settings = Settings(upstream_url=url)
    assert path_keys(url) == (KEY,)
    assert KEY not in repr(describe(settings))
    assert KEY not in Redactor(settings.secrets()).text(f"cannot connect to {url}")
