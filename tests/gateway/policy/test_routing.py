import pytest

from gateway.core.errors import UnknownModel
from gateway.policy.routing import DEFAULT_UPSTREAM, route


@pytest.mark.parametrize(
    "model",
    ["gpt-4o", "qwen/qwen3-coder:free", "/models/llama.gguf", "hf.co/org/model:Q4_K_M", "ft:gpt-4o:a::b", "模型"],
)
def test_the_names_that_real_servers_use_are_routed(model):
    assert route(model) == DEFAULT_UPSTREAM


@pytest.mark.parametrize(
    "model", ["http://169.254.169.254/latest", "ftp://evil.example/x", "../admin", "a/../b", "a\\b", "m" * 257]
)
def test_a_name_that_would_be_a_path_or_an_address_is_unknown(model):
    with pytest.raises(UnknownModel) as raised:
        route(model)
    assert raised.value.status == 404
    assert raised.value.param == "model"
    assert len(raised.value.message) < 120
