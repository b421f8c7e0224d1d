"""The tables of the TOML file: upstreams and rules for models."""

import pytest

from gateway.config.load import inspect, load
from gateway.core.errors import ConfigError
from gateway.kinds.qwen_web.dialogue import QwenWebOptions

WHOLE = """
log_level = "warning"

[upstreams.local]
url = "http://127.0.0.1:8000/v1"
models = ["qwen*", "llama*"]
idle_timeout_s = 12.5

[upstreams.cloud]
url = "https://api.example.com"
kind = "anthropic"
api_key = "sk-finch-1"

[upstreams.web]
url = "https://chat.example.com"
kind = "qwen_web"
cookies = "a=finch-2; b=2"
qwen_web = { create_path = "/chats", names = { parent_id = "parentId" } }

[[models]]
match = "claude*"
upstream = "cloud"
fallback = "local"
send_as = "claude-x"
first_byte_timeout_s = 30

[[models]]
match = "qwen3*"
strategy = "xml_prompt:hermes"
intent = "deliver"
"""


@pytest.fixture
def given(tmp_path):
    def write(content: str) -> dict[str, str]:
        path = tmp_path / "toolgate.toml"
        path.write_text(content)
        return {"GATEWAY_CONFIG": str(path)}

    return write


WEB = '[upstreams.a]\nurl = "http://x"\nkind = "qwen_web"\n'
CLOUD = '[upstreams.a]\nurl = "http://x/v1"\nkind = "anthropic"\n'


def faults_of(environ):
    with pytest.raises(ConfigError) as raised:
        load(environ)
    return raised.value.faults


def test_upstreams_and_rules_are_read_in_their_order(given):
    settings = load(given(WHOLE))
    assert settings.log_level == "warning"
    local, cloud, web = settings.routes.upstreams
    assert (local.name, local.kind, local.models, local.idle_timeout_s) == (
        "local",
        "openai",
        ("qwen*", "llama*"),
        12.5,
    )
    assert (cloud.kind, cloud.api_key) == ("anthropic", "sk-finch-1")
    assert isinstance(web.options, QwenWebOptions)
    assert (web.options.create_path, web.options.names) == ("/chats", {"parent_id": "parentId"})
    claude, qwen = settings.routes.models
    assert (claude.upstream, claude.fallback, claude.send_as, claude.first_byte_timeout_s) == (
        "cloud",
        "local",
        "claude-x",
        30.0,
    )
    assert qwen.intent == "deliver"
    [rule] = settings.all_rules()
    assert str(rule) == "qwen3*=xml_prompt:hermes"
    assert not settings.is_demo


def test_secrets_of_the_tables_are_never_shown(given, tmp_path):
    settings = load(given(WHOLE))
    assert {"sk-finch-1", "a=finch-2; b=2"} <= set(settings.secrets())
    assert "finch" not in repr(settings)
    (tmp_path / "key").write_text("sk-finch-3\n")
    text = f'[upstreams.a]\nurl = "http://a/v1"\napi_key_file = "{tmp_path}/key"\n'
    assert load(given(text)).routes.upstreams[0].api_key == "sk-finch-3"


def test_another_table_is_another_configuration(given):
    assert load(given(WHOLE)).digest() != load(given(WHOLE.replace("claude-x", "claude-y"))).digest()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[upstreams.a]\nkind = "openai"', "upstreams.a: url is missing"),
        ('[upstreams.a]\nurl = "ftp://x"', "upstreams.a: url: must be an http"),
        ('[upstreams.a]\nurl = "http://x/v1"\nkind = "bedrock"', "kind: must be"),
        ('[upstreams.a]\nurl = "http://x/v1"\ncolour = 1', "'colour' is none of"),
        ('[upstreams.default]\nurl = "http://x/v1"', "default is UPSTREAM_URL's own"),
        ('[upstreams.a]\nurl = "http://localhost:8080/v1"', "upstreams.a: url: is the gateway's own address"),
        ('[upstreams."a b"]\nurl = "http://x/v1"', "a name is at most"),
        ('[upstreams]\na = "http://x/v1"', "must be a table"),
        ('upstreams = 5\nupstream_url = "http://x/v1"', "upstreams must be tables"),
        ('[upstreams.a]\nurl = "http://x/v1"\nidle_timeout_s = -1', "idle_timeout_s: must be a number of seconds"),
        ('[upstreams.a]\nurl = "http://x/v1"\napi_key_file = "/nowhere"', "api_key_file"),
        (f'{WEB}qwen_web = {{ creat_path = "/x" }}', "upstreams.a.qwen_web: 'creat_path' is none of"),
        (f"{WEB}qwen_web = {{ create_path = 5 }}", "upstreams.a.qwen_web: "),
        (f'{WEB}qwen_web = {{ create_path = "x" }}', "create_path: must begin with a slash"),
        (f"{WEB}qwen_web = {{ session_ttl_s = 0 }}", "session_ttl_s: must be"),
        (f"{WEB}qwen_web = 5", "upstreams.a.qwen_web: must be a table"),
        (f"{WEB}[upstreams.a.gemini]\n", "upstreams.a.gemini: this server is of the kind qwen_web"),
        (f'{CLOUD}[upstreams.a.anthropic]\nauth = "basic"', "upstreams.a.anthropic: "),
        (f'{CLOUD}[upstreams.a.anthropic]\nversion = "a\\nb"', "version: must be"),
        (f"{CLOUD}[upstreams.a.anthropic]\nmax_tokens = 0", "max_tokens: must be"),
        (f'{CLOUD}down_level = ["patern"]', "down_level: 'patern' is none of"),
        (f'{CLOUD}down_level = ["properties"]', "down_level: 'properties' is none of"),
        (f'{CLOUD}cookies = "a=b\\nc"', "cookies: must be printable ASCII"),
        ('[[models]]\nupstream = "default"\n[upstreams.a]\nurl = "http://x/v1"', "match is missing"),
        ('[[models]]\nmatch = "*"\nupstream = "b"\n[upstreams.a]\nurl = "http://x/v1"', "no upstream named 'b'"),
        ('[[models]]\nmatch = "*"\nfallback = "b"\n[upstreams.a]\nurl = "http://x/v1"', "no upstream named 'b'"),
        ('[[models]]\nmatch = "*"\nintent = "maybe"\n[upstreams.a]\nurl = "http://x/v1"', "intent: must be"),
        ('[[models]]\nmatch = "*"\ntool_map = "vim"\n[upstreams.a]\nurl = "http://x/v1"', "tool_map: must be"),
        ('models = [1]\n[upstreams.a]\nurl = "http://x/v1"', "must be a table: [[models]]"),
        ('models = 1\n[upstreams.a]\nurl = "http://x/v1"', "models must be a list"),
        ('[[models]]\nmatch = "*"\nstrategy = "native:hermes"\n[upstreams.a]\nurl = "http://x/v1"', "takes no dialect"),
        ('[routes]\na = 1\n[upstreams.a]\nurl = "http://x/v1"', "table [routes] is not one of a configuration"),
    ],
)
def test_what_is_wrong_in_a_table_is_said(given, content, said):
    faults = faults_of(given(content))
    assert any(said in fault for fault in faults)
    assert all("UPSTREAM_URL: is missing" in fault for fault in faults if said not in fault)


def test_all_faults_of_the_tables_are_told_at_once(given):
    content = '[upstreams.a]\nurl = "x"\nkind = "y"\n[[models]]\nintent = "z"\n'
    _, faults = inspect(given(content))
    assert len(faults) >= 4
