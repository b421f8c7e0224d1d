import pytest

from gateway.core.errors import UnknownModel
from gateway.core.rules import ModelRule
from gateway.traffic.routing import DEFAULT_UPSTREAM, Router


@pytest.mark.parametrize(
    "model",
    ["gpt-4o", "qwen/qwen3-coder:free", "/models/llama.gguf", "hf.co/org/model:Q4_K_M", "ft:gpt-4o:a::b", "模型"],
)
def test_the_names_that_real_servers_use_are_routed(model):
    assert Router().route(model).upstreams == (DEFAULT_UPSTREAM,)


@pytest.mark.parametrize(
    "model", ["http://169.254.169.254/latest", "ftp://evil.example/x", "../admin", "a/../b", "a\\b", "m" * 257]
)
def test_a_name_that_would_be_a_path_or_an_address_is_unknown(model):
    with pytest.raises(UnknownModel) as raised:
        Router().route(model)
    assert raised.value.status == 404
    assert raised.value.param == "model"
    assert len(raised.value.message) < 120


def test_the_first_rule_that_matches_counts():
    rules = [
        ModelRule(match="Qwen*coder*", upstream="a", fallback="b", send_as="q"),
        ModelRule(match="qwen*", upstream="b"),
    ]
    router = Router(rules=rules)
    for model in ("qwen3-coder-plus", "org/QWEN-Coder"):
        assert router.route(model).upstreams == ("a", "b")
        assert router.route(model).send_as == "q"
    assert router.route("qwen3").upstreams == ("b",)
    assert router.route("qwen3").send_as is None
    assert router.route("llama").rule is None


def test_an_upstream_serves_the_models_that_it_names():
    router = Router(default="x", served=[("llama*", "a"), ("*", "b")], rules=[ModelRule(match="llama-4*")])
    assert router.route("llama-3").upstreams == ("a",)
    assert router.route("llama-4").upstreams == ("a",), "a rule without an upstream leaves that to who serves it"
    assert router.route("other").upstreams == ("b",)


def test_an_upstream_is_no_fallback_of_its_own():
    assert Router(rules=[ModelRule(match="*", upstream="a", fallback="a")]).route("m").upstreams == ("a",)
