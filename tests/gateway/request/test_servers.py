"""Model servers as the settings describe them."""

import pytest

from gateway.config.load import load
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.qwen_web.dialogue import QwenWebKind
from gateway.kinds.shared.port import HttpAsk
from gateway.request.servers import Upstream, upstreams_of

TABLES = """
[upstreams.claude]
url = "https://a.example.com/v1"
kind = "anthropic"
api_key = "sk-one"
down_level = ["format"]
[upstreams.claude.anthropic]
auth = "bearer"
max_tokens = 4000
[upstreams.gemini]
url = "https://b.example.com/v1beta"
kind = "gemini"
gemini = { schema_field = "parametersJsonSchema" }
[upstreams.web]
url = "https://c.example.com"
kind = "qwen_web"
cookies = 'a=1; token="long-enough"; b=shorter'
[upstreams.web.qwen_web]
gone_codes = ["chat_is_over"]
"""


@pytest.fixture
def upstreams(tmp_path):
    path = tmp_path / "toolgate.toml"
    path.write_text(TABLES)
    return upstreams_of(load({"GATEWAY_CONFIG": str(path), "STORE_URL": "memory://"}), None)


def test_each_kind_has_the_options_of_its_table(upstreams: dict[str, Upstream]) -> None:
    claude, gemini, web = (upstreams[name].kind for name in ("claude", "gemini", "web"))
    assert isinstance(claude, AnthropicKind)
    assert (claude.options.auth, claude.options.max_tokens) == ("bearer", 4000)
    assert isinstance(gemini, GeminiKind)
    assert gemini.options.schema_field == "parametersJsonSchema"
    assert isinstance(web, QwenWebKind)
    assert web.options.gone_codes == {"chat_is_over"}
    assert upstreams["claude"].down_level == ("format",)


def test_what_proves_the_gateway_is_masked_as_it_stands_in_json(upstreams: dict[str, Upstream]) -> None:
    assert upstreams["claude"].masked(b'{"m": "sk-one"}') == b'{"m": "********"}'
    web = upstreams["web"]
    told = b'{"m": "a=1; token=\\"long-enough\\"; b=shorter", "n": "long-enough", "o": "1 shorter"}'
    assert web.masked(told) == b'{"m": "********", "n": "********", "o": "1 shorter"}'


def test_requests_go_below_the_servers_address(upstreams: dict[str, Upstream]) -> None:
    ask = HttpAsk(path="/models/a%2Fb:generate", query=(("alt", "sse"),))
    assert str(upstreams["gemini"].url(ask)) == "https://b.example.com/v1beta/models/a%2Fb:generate?alt=sse"
