"""Settings: every source, every fault, nothing ignored and no secret shown."""

from datetime import date
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.load import DECLARED, LATER, Settings, describe, inspect, load, reload
from gateway.config.names import distance_within, nearest
from gateway.config.reference import settings_table_markdown
from gateway.core.errors import ConfigError
from gateway.core.rules import Rule
from gateway.state.opening import open_store

UPSTREAM = {"UPSTREAM_URL": "http://127.0.0.1:8000/v1"}
NAMES = [entry.name for entry in DECLARED]


def faults_of(environ: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(environ)
    return caught.value.faults


def test_an_empty_environment_gives_the_demo_with_every_default():
    settings = load({})
    assert settings == Settings()
    assert settings.is_demo
    assert (settings.host, settings.port, settings.min_confidence) == ("127.0.0.1", 8080, 90)
    assert {source for _, _, source in describe(settings)} == {"default"}


@pytest.mark.parametrize(
    ("name", "raw", "attribute", "value"),
    [
        ("GATEWAY_PORT", "9000", "port", 9000),
        ("GATEWAY_HOST", "::1", "host", "::1"),
        ("GATEWAY_HOST", "[::1]", "host", "::1"),
        ("GATEWAY_MAX_BODY_BYTES", "2 MiB", "max_body_bytes", 2 << 20),
        ("GATEWAY_MAX_BODY_BYTES", "64kib", "max_body_bytes", 64 << 10),
        ("GATEWAY_MAX_BODY_BYTES", "4096", "max_body_bytes", 4096),
        ("GATEWAY_KEEPALIVE_S", "0.5", "keepalive_s", 0.5),
        ("GATEWAY_DRAIN_S", "0", "drain_s", 0.0),
        ("TOOL_CALLING_ENABLED", "Off", "tool_calling_enabled", False),
        ("TOOL_CALLING_ENABLED", "yes", "tool_calling_enabled", True),
        ("TRANSFORM_MIN_CONFIDENCE", "0.29", "min_confidence", 29),
        ("TRANSFORM_MIN_CONFIDENCE", "1", "min_confidence", 100),
        ("TRANSFORM_MODE", "OFF", "transform_mode", "off"),
        ("RECOVERY_TOOLS", "read*, write ,", "recovery_tools", ("read*", "write")),
        ("LOG_LEVEL", "Debug", "log_level", "debug"),
        ("UPSTREAM_URL", "https://models.example/v1/", "upstream_url", "https://models.example/v1"),
    ],
)
def test_a_value_is_read_into_its_type(name, raw, attribute, value):
    settings = load({name: raw})
    assert getattr(settings, attribute) == value
    assert settings.is_set(name)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("GATEWAY_PORT", "70000"),
        ("GATEWAY_PORT", "-1"),
        ("GATEWAY_PORT", "８０"),
        ("GATEWAY_PORT", "9" * 5000),
        ("GATEWAY_HOST", "127.0.0.1:80"),
        ("GATEWAY_HOST", "bad host"),
        ("GATEWAY_HOST", "300.1.1.1"),
        ("GATEWAY_HOST", "127.1"),
        ("GATEWAY_MAX_BODY_BYTES", "10MB"),
        ("GATEWAY_MAX_BODY_BYTES", "-5"),
        ("GATEWAY_MAX_BODY_BYTES", "1"),
        ("GATEWAY_KEEPALIVE_S", "0"),
        ("GATEWAY_KEEPALIVE_S", "nan"),
        ("GATEWAY_KEEPALIVE_S", "inf"),
        ("GATEWAY_KEEPALIVE_S", "1e9"),
        ("GATEWAY_ALLOW_OPEN", "maybe"),
        ("GATEWAY_ALLOWED_HOSTS", "http://gate.example"),
        ("GATEWAY_ALLOWED_HOSTS", "gate.example/v1"),
        ("GATEWAY_ALLOWED_HOSTS", "gate.example,bad host"),
        ("GATEWAY_ALLOWED_HOSTS", "*"),
        ("GATEWAY_ALLOWED_HOSTS", "*.example"),
        ("GATEWAY_ALLOWED_HOSTS", ","),
        ("GATEWAY_ALLOWED_HOSTS", "user@gate.example"),
        ("GATEWAY_ALLOWED_HOSTS", "gate.example:0x50"),
        ("GATEWAY_ALLOWED_HOSTS", "gate.example:70000"),
        ("GATEWAY_ALLOWED_HOSTS", "127.1"),
        ("GATEWAY_ALLOWED_HOSTS", "bücher.example"),
        ("GATEWAY_ALLOWED_HOSTS", "gate.example."),
        ("GATEWAY_ALLOWED_ORIGINS", "chat.example"),
        ("GATEWAY_ALLOWED_ORIGINS", "https://chat.example,chat.example"),
        ("GATEWAY_ALLOWED_ORIGINS", "https://chat.example/"),
        ("GATEWAY_ALLOWED_ORIGINS", "https://chat.example/path"),
        ("GATEWAY_ALLOWED_ORIGINS", "https://user@chat.example"),
        ("GATEWAY_ALLOWED_ORIGINS", "https://*"),
        ("GATEWAY_ALLOWED_ORIGINS", "HTTP://*"),
        ("GATEWAY_ALLOWED_ORIGINS", "https://*.example"),
        ("GATEWAY_ALLOWED_ORIGINS", "vscode-webview://*:80"),
        ("GATEWAY_ALLOWED_ORIGINS", "vscode-webview://a*"),
        ("GATEWAY_ALLOWED_ORIGINS", "vscode-webview://"),
        ("GATEWAY_ALLOWED_ORIGINS", "*://*"),
        ("GATEWAY_ALLOWED_ORIGINS", "*"),
        ("GATEWAY_ALLOWED_ORIGINS", "null"),
        ("GATEWAY_ALLOWED_ORIGINS", ","),
        ("TRANSFORM_MIN_CONFIDENCE", "0.905"),
        ("TRANSFORM_MIN_CONFIDENCE", "1.01"),
        ("TRANSFORM_MIN_CONFIDENCE", "NaN"),
        ("TRANSFORM_MIN_CONFIDENCE", "sNaN"),
        ("STRATEGY_RULES", "qwen*"),
        ("STRATEGY_RULES", "=native"),
        ("STRATEGY_RULES", "qwen*=xml_prompt:"),
        ("STRATEGY_RULES", "qwen*=xml prompt"),
        ("UPSTREAM_URL", "ftp://host/v1"),
        ("UPSTREAM_URL", "127.0.0.1:8000/v1"),
        ("UPSTREAM_URL", "http:///v1"),
        ("UPSTREAM_URL", "http://host:99999/v1"),
        ("UPSTREAM_URL", "http://host/v1?key=1"),
        ("UPSTREAM_URL", "http://[::1/v1"),
        ("UPSTREAM_URL", "http://ho st/v1"),
        ("LOG_LEVEL", "loud"),
        ("TRAILING_TEXT", "shred"),
    ],
)
def test_a_value_out_of_bounds_is_one_fault_that_names_the_setting(name, raw):
    faults = faults_of({name: raw})
    assert len([fault for fault in faults if fault.startswith(f"{name}: ")]) == 1


@given(st.sampled_from(NAMES), st.text(max_size=40))
def test_no_value_makes_anything_but_a_fault(name, raw):
    settings, faults = inspect({name: raw} if "FILE" not in name and name != "GATEWAY_CONFIG" else {})
    assert isinstance(settings, Settings)
    assert all(isinstance(fault, str) for fault in faults)


def test_all_faults_are_reported_at_once():
    faults = faults_of({"GATEWAY_PORT": "x", "LOG_LEVEL": "loud", "CANARY_PERCENT": "500", "GATEWAY_PROT": "1"})
    assert sorted(fault.split(":")[0] for fault in faults) == [
        "CANARY_PERCENT",
        "GATEWAY_PORT",
        "GATEWAY_PROT",
        "LOG_LEVEL",
    ]


def test_an_empty_value_counts_as_not_set():
    assert load(dict.fromkeys(NAMES, " ")) == Settings()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("GATEWAY_PROT", "GATEWAY_PORT"),
        ("UPSTREAM_ULR", "UPSTREAM_URL"),
        ("LOGLEVEL", "LOG_LEVEL"),
        ("CANARY_PERCENTS", "CANARY_PERCENT"),
        ("UPSTREAM_API_KEY_FIEL", "UPSTREAM_API_KEY_FILE"),
        ("gateway_port", "GATEWAY_PORT"),
        ("ROLLBACK_MOED", "ROLLBACK_MODE"),
    ],
)
def test_a_name_within_two_edits_is_refused_as_misspelt(name, meant):
    [fault] = faults_of({name: "1"})
    assert fault.startswith(f"{name}: ")
    assert meant in fault


def test_an_unknown_name_with_a_prefix_of_ours_is_refused():
    [fault] = faults_of({"GATEWAY_SOMETHING_ELSE": "1"})
    assert "GATEWAY_SOMETHING_ELSE" in fault


def test_names_of_other_programs_are_left_alone():
    ordinary = ["PATH", "HOME", "SHELL", "TERM", "LANG", "HOSTNAME", "LOGNAME", "TZ", "http_proxy", "SHLVL", "LESS"]
    ordinary += ["OPENAI_API_KEY", "DATABASE_URL", "LC_ALL", "PYTHONPATH", "TMUX", "PORT", "HOST", "_", "LS_COLORS"]
    assert load(dict.fromkeys(ordinary, "x")) == Settings()


def test_kubernetes_service_links_are_ignored_unless_they_fall_on_a_setting():
    links = {
        "STORE_SERVICE_HOST": "10.0.0.1",
        "STORE_SERVICE_PORT": "6379",
        "STORE_PORT": "tcp://10.0.0.1:6379",
        "STORE_PORT_6379_TCP_ADDR": "10.0.0.1",
        "GATEWAY_SERVICE_PORT_HTTP": "80",
    }
    assert load(links) == Settings()
    [fault] = faults_of(links | {"GATEWAY_PORT": "tcp://10.0.0.2:80"})
    assert "Kubernetes" in fault
    assert "enableServiceLinks" in fault


@pytest.mark.parametrize("value", ["something", "multiproc"])
@pytest.mark.parametrize("later", LATER, ids=lambda later: later.name)
def test_a_setting_of_a_later_version_is_refused_unless_it_says_off(later, value):
    [fault] = faults_of({later.name: value})
    assert fault.startswith(f"{later.name}:")
    assert "not available in this version" in fault
    for accepted in later.accepts:
        assert load({later.name: accepted.upper() if accepted.isalpha() else accepted})


@pytest.mark.parametrize("rule", ["q*=xml_prompt:klingon", "q*=native:hermes", "q*=recovery:hermes"])
def test_a_rule_with_a_dialect_that_nothing_writes_is_refused(rule):
    [fault] = faults_of({"STRATEGY_RULES": f"{rule},x*=xml_prompt:hermes,y*=plug_in:own"})
    assert rule in fault


def test_a_store_address_is_never_shown_with_its_password():
    assert "hunter22" not in str(faults_of({"STORE_URL": "redis://u:hunter22@h:port"}))
    settings = load({"STORE_URL": "redis://u:hunter22@h/0"})
    [shown] = [value for name, value, _ in describe(settings) if name == "STORE_URL"]
    assert shown == "redis://u:********@h/0"
    assert "hunter22" in settings.secrets()


@pytest.mark.parametrize(
    "url",
    [
        *("sqlite://x", "sqlite:///", "sqlite:/x", "sqlite:///x?mode=ro", "sqlite:///x#y", "sqlite:///:memory:"),
        *(
            "redis://",
            "redis://h/abc",
            "redis://h/1/2",
            "redis://h/0?retry=1",
            "rediss://h?protocol=3",
            "redis://h:p/0",
        ),
        *("unix://", "unix:///s?timeout=1", "memory://x", "postgres://h", "x"),
    ],
)
def test_a_store_that_cannot_be_is_refused(url):
    [fault] = faults_of({"STORE_URL": url})
    assert fault.startswith("STORE_URL: must ")
    with pytest.raises(ValueError, match="must "):
        open_store(url, prefix="", timeout_ms=1)


@pytest.mark.parametrize(
    "url",
    [
        *("memory://", "sqlite:///x.db", "sqlite:////var/lib/x.db", "sqlite:///a%20b.db"),
        *("redis://h", "redis://h/", "redis://u:p@h:1/5", "rediss://h/0?ssl_cert_reqs=none", "unix:///run/redis.sock"),
    ],
)
def test_what_names_a_store_is_taken_by_it(url):
    settings = load({"STORE_URL": url})
    assert open_store(settings.store_url, prefix="", timeout_ms=1)


@pytest.mark.parametrize("percent", ["0", "0.01", "0.5", "50", "99.99", "100"])
def test_a_share_keeps_two_decimals(percent):
    settings = load({"CANARY_PERCENT": percent})
    assert settings.canary_percent == round(float(percent) * 100)
    assert dict((name, value) for name, value, _ in describe(settings))["CANARY_PERCENT"] == percent


@pytest.mark.parametrize("percent", ["-1", "100.01", "0.001", "ten", "nan", "1e9"])
def test_a_share_outside_its_bounds_is_refused(percent):
    [fault] = faults_of({"CANARY_PERCENT": percent})
    assert "0 to 100" in fault


def test_steps_rise():
    assert load({"CANARY_STEPS": "1, 5,25.5"}).canary_steps == (100, 500, 2550)
    for steps in ("5,1", "0,1", "1,1", "", "x"):
        assert (
            not steps
            or "rising" in str(faults_of({"CANARY_STEPS": steps}))
            or "0 to 100" in str(faults_of({"CANARY_STEPS": steps}))
        )


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ("apply_patch", (("*", "apply_patch"),)),
        ("claude*=claude_text_editor, gpt*=apply_patch", (("claude*", "claude_text_editor"), ("gpt*", "apply_patch"))),
        ("none", (("*", "none"),)),
    ],
)
def test_tools_are_mapped_for_all_models_or_some(raw, read):
    settings = load({"TOOL_MAP": raw})
    assert settings.tool_map == read
    [shown] = [value for name, value, _ in describe(settings) if name == "TOOL_MAP"]
    assert load({"TOOL_MAP": shown}).tool_map == read


@pytest.mark.parametrize("wrong", ["vim", "claude*=", "=apply_patch", "a=b"])
def test_a_mapping_that_is_not_there_is_refused(wrong):
    assert "apply_patch or claude_text_editor" in str(faults_of({"TOOL_MAP": wrong}))


def test_aliases_of_tools_name_both_sides():
    settings = load({"TOOL_ALIASES": "readFile=read_file, Bash=execute_command"})
    assert settings.tool_aliases == (("readFile", "read_file"), ("Bash", "execute_command"))
    assert "TOOL_ALIASES" in str(faults_of({"TOOL_ALIASES": "readFile"}))


def test_known_differences_name_what_they_cover_and_until_when():
    [rule] = load({"DRY_RUN_IGNORE": "json_*:read_*=2027-01-31"}).dry_run_ignore
    assert rule.covers("json_block", "read_file", date(2027, 1, 30))
    assert not rule.covers("json_block", "read_file", date(2027, 1, 31))
    assert not rule.covers("hermes", "read_file", date(2026, 1, 1))
    for wrong in ("json", "json=2027-01-01", "a:b=soon", ":b=2027-01-01"):
        assert "2027-01-31" in str(faults_of({"DRY_RUN_IGNORE": wrong}))


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"GATEWAY_WORKERS": "2", "STORE_URL": "memory://"}, "STORE_URL"),
        ({"GATEWAY_WORKERS": "4", "GATEWAY_PORT": "9466"}, "METRICS_PORT: 9464 to 9467"),
        ({"GATEWAY_WORKERS": "4", "METRICS_PORT": "65534"}, "METRICS_PORT"),
        ({"CANARY_FORCE_HEADER": "X-Arm"}, "CANARY_FORCE_HEADER"),
        ({"CANARY_STICKY_HEADER": "X-Session-Id: "}, "CANARY_STICKY_HEADER: must be the name of a header"),
        ({"TRUSTED_PROXIES": "10.0.0.1/8"}, "TRUSTED_PROXIES"),
        ({"UPSTREAM_URL": "http://127.0.0.1:8080/v1"}, "UPSTREAM_URL: is the gateway's own address"),
        ({"UPSTREAM_URL": "http://LOCALHOST/v1", "GATEWAY_PORT": "80"}, "UPSTREAM_URL: is the gateway's own address"),
        ({"UPSTREAM_URL": "https://[::1]/v1", "GATEWAY_PORT": "443", "GATEWAY_HOST": "::"}, "UPSTREAM_URL: is the gat"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(environ, said):
    [fault] = faults_of(environ)
    assert fault.startswith(said)


@pytest.mark.parametrize(
    "environ",
    [
        {"UPSTREAM_URL": "http://127.0.0.1:8000/v1"},
        {"UPSTREAM_URL": "http://127.0.0.2:8080/v1"},
        {"UPSTREAM_URL": "http://10.0.0.1:8080/v1", "GATEWAY_HOST": "::"},
    ],
)
def test_a_neighbour_is_not_the_gateway_itself(environ):
    assert load(environ).upstream_url == environ["UPSTREAM_URL"]


def test_rules_keep_their_order_and_dialect():
    settings = load({"STRATEGY_RULES": "qwen*=xml_prompt:hermes, gpt-* = native ,*=recovery"})
    assert settings.strategy_rules == (
        Rule(pattern="qwen*", strategy="xml_prompt", dialect="hermes"),
        Rule(pattern="gpt-*", strategy="native"),
        Rule(pattern="*", strategy="recovery"),
    )
    [shown] = [value for name, value, _ in describe(settings) if name == "STRATEGY_RULES"]
    assert shown == "qwen*=xml_prompt:hermes,gpt-*=native,*=recovery"


def test_the_environment_wins_at_start_and_the_file_at_reload(tmp_path: Path):
    env_file = tmp_path / "env"
    env_file.write_text('# comment\n\nexport GATEWAY_PORT="9001"\nLOG_LEVEL=debug\r\n')
    environ = {"GATEWAY_ENV_FILE": str(env_file), "GATEWAY_PORT": "9000"}
    assert (load(environ).port, load(environ).log_level) == (9000, "debug")
    assert reload(environ).port == 9001
    assert dict((name, source) for name, _, source in describe(reload(environ)))["GATEWAY_PORT"] == f"file {env_file}"


def test_toml_holds_the_same_settings_and_everything_wins_over_it(tmp_path: Path):
    toml = tmp_path / "toolgate.toml"
    toml.write_text(
        'gateway_port = 9002\nUPSTREAM_URL = "http://h/v1"\nrecovery_json = false\nmetrics_tools = ["a", "b"]\n'
        "transform_min_confidence = 0.8\n"
    )
    settings = load({"GATEWAY_CONFIG": str(toml)})
    assert (settings.port, settings.upstream_url, settings.recovery_json) == (9002, "http://h/v1", False)
    assert (settings.metrics_tools, settings.min_confidence) == (("a", "b"), 80)
    assert load({"GATEWAY_CONFIG": str(toml), "GATEWAY_PORT": "1"}).port == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[[upstreams]]\nurl='x'\n", "upstreams must be tables"),
        ("[rules]\na='x'\n", "not one of a configuration"),
        ("something = 1\n", "not a setting"),
        ("gateway_prot = 1\n", "GATEWAY_PORT"),
        ("gateway_port = \n", "not valid TOML"),
        ("gateway_port = 1\nGATEWAY_PORT = 2\n", "set twice"),
        ("gateway_port = 2020-01-01\n", "must be text"),
        ("gateway_env_file = 'x'\n", "cannot be set"),
        ("a = " + "[" * 5000, "not valid TOML"),
        ("gateway_port = " + "9" * 5000, "not valid TOML"),
    ],
)
def test_a_fault_in_the_toml_file_is_named(tmp_path: Path, content, words):
    toml = tmp_path / "toolgate.toml"
    toml.write_text(content)
    assert any(words in fault for fault in faults_of(UPSTREAM | {"GATEWAY_CONFIG": str(toml)}))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"what is this\n", "line 1"),
        (b"A=1\nGATEWAY_PORT=1\nGATEWAY_PORT=2\n", "line 3"),
        (b"GATEWAY_ENV_FILE=/x\n", "cannot be set"),
        (b"\xff\xfe\n", "not UTF-8"),
        (b"#" * ((1 << 20) + 1), "larger than"),
        (b"GATEWAY_PROT=1\n", "GATEWAY_PORT"),
    ],
)
def test_a_fault_in_the_env_file_is_named(tmp_path: Path, content, words):
    env_file = tmp_path / "env"
    env_file.write_bytes(content)
    assert any(words in fault for fault in faults_of({"GATEWAY_ENV_FILE": str(env_file)}))


@pytest.mark.parametrize("name", ["GATEWAY_ENV_FILE", "GATEWAY_CONFIG", "UPSTREAM_API_KEY_FILE"])
@pytest.mark.parametrize("path", ["/nowhere/at/all", "/", "a\0b"])
def test_a_file_that_cannot_be_read_is_a_fault(name, path):
    assert any(fault.startswith(name) for fault in faults_of(UPSTREAM | {name: path}))


def test_a_secret_may_stand_in_a_file_and_is_never_shown(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("sk-finch-value\n")
    keys = tmp_path / "keys"
    keys.write_text("gate-finch-key\n")
    settings = load(UPSTREAM | {"UPSTREAM_API_KEY_FILE": str(secret), "GATEWAY_API_KEYS_FILE": str(keys)})
    assert settings.upstream_api_key == "sk-finch-value"
    assert len(settings.api_keys) == 1
    assert settings.secrets() == ("sk-finch-value",)
    shown = f"{settings!r} {describe(settings)} {attrs.asdict(settings, filter=lambda a, _: bool(a.repr))}"
    assert "finch" not in shown
    assert "********" in shown


def test_a_secret_given_twice_is_a_fault(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("other\n")
    [fault] = faults_of(UPSTREAM | {"UPSTREAM_API_KEY": "sk-canary", "UPSTREAM_API_KEY_FILE": str(secret)})
    assert "canary" not in fault


def test_the_stronger_source_replaces_a_secret_and_its_file(tmp_path: Path):
    env_file = tmp_path / "env"
    env_file.write_text(f"UPSTREAM_API_KEY_FILE={tmp_path / 'missing'}\n")
    environ = UPSTREAM | {"GATEWAY_ENV_FILE": str(env_file), "UPSTREAM_API_KEY": "from-environment"}
    assert load(environ).upstream_api_key == "from-environment"
    with pytest.raises(ConfigError):
        reload(environ)


@pytest.mark.parametrize(
    "environ",
    [
        {"UPSTREAM_API_KEY": "canary\x01key"},
        {"UPSTREAM_API_KEY": "canary key"},
        {"UPSTREAM_API_KEY": "canary\r\nX: y"},
        {"GATEWAY_API_KEYS": "sha256:canary"},
        {"GATEWAY_API_KEYS": "canary key"},
        {"UPSTREAM_URL": "http://user:canary@host/v1"},
    ],
)
def test_a_faulty_secret_is_not_repeated_in_the_fault(environ):
    assert "canary" not in str(faults_of(UPSTREAM | environ))


@pytest.mark.parametrize(
    "raw",
    [
        "http://host/v1?key=canary",
        "http://host/v1?a=b&key=canary#x",
        "http://host/v1#canary",
        "http://host/v1;key=canary?x",
        "host/v1?api-version=1&key=canary",
        "ftp://host/v1?key=canary",
        "HTTPS://host:99999/v1?key=canary",
        "http://host/v1?key=canary canary",
        "?canary",
    ],
)
def test_a_key_in_a_refused_address_is_not_repeated(raw):
    [fault] = [fault for fault in faults_of({"UPSTREAM_URL": raw}) if fault.startswith("UPSTREAM_URL")]
    assert "canary" not in fault
    assert raw.partition("?")[0].partition("#")[0].partition(";")[0] in fault


def test_an_open_gateway_that_others_reach_must_be_asked_for():
    environ = UPSTREAM | {"GATEWAY_HOST": "10.0.0.1", "UPSTREAM_API_KEY": "k"}
    [fault] = faults_of(environ)
    assert fault.startswith("GATEWAY_API_KEYS")
    assert load(environ | {"GATEWAY_ALLOW_OPEN": "true"}).allow_open
    assert load(environ | {"GATEWAY_API_KEYS": "abc"})
    assert load(environ | {"GATEWAY_HOST": "127.0.0.1"})
    assert load(environ | {"UPSTREAM_API_KEY": ""})


def test_hosts_and_origins_are_kept_in_the_form_that_browsers_send():
    environ = {
        "GATEWAY_ALLOWED_HOSTS": "Gate.Example, 10.0.0.5:8080, FD00::1, [fd00:0::2]:81",
        "GATEWAY_ALLOWED_ORIGINS": "HTTPS://Chat.Example:443, http://localhost:3000,vscode-webview://*, app://obsidian.md",
    }
    shown = {name: value for name, value, _ in describe(load(environ))}
    assert shown["GATEWAY_ALLOWED_HOSTS"] == "gate.example,10.0.0.5:8080,[fd00::1],[fd00::2]:81"
    assert shown["GATEWAY_ALLOWED_ORIGINS"] == (
        "https://chat.example,http://localhost:3000,vscode-webview://*,app://obsidian.md"
    )
    again = load({name: shown[name] for name in environ})
    assert (again.allowed_hosts, again.allowed_origins) == (load(environ).allowed_hosts, load(environ).allowed_origins)


def test_a_list_of_keys_without_a_key_in_it_does_not_open_the_gateway(tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_text("# none yet\n")
    assert "holds no key" in str(faults_of({"GATEWAY_API_KEYS": f"@{keys}"}))
    assert "holds no key" in str(faults_of({"GATEWAY_API_KEYS": ","}))


def test_the_demo_answers_on_loopback_only_and_not_beside_a_toml_file(tmp_path: Path):
    toml = tmp_path / "toolgate.toml"
    toml.write_text("gateway_port = 1\n")
    assert faults_of({"GATEWAY_HOST": "10.0.0.1"})[0].startswith("UPSTREAM_URL")
    assert faults_of({"GATEWAY_CONFIG": str(toml)})[0].startswith("UPSTREAM_URL")
    assert load({"GATEWAY_HOST": "localhost"}).is_demo
    assert load({"GATEWAY_HOST": "127.8.9.1"}).is_demo


def test_a_faulty_upstream_url_is_not_also_called_missing():
    assert len(faults_of({"GATEWAY_HOST": "10.0.0.1", "UPSTREAM_URL": "nonsense"})) == 1


@pytest.mark.parametrize("content", [None, "url = \n", "[upstreams.a]\nurl = 'x'\n"])
def test_a_server_that_a_faulty_file_may_name_is_not_also_called_missing(tmp_path: Path, content):
    toml = tmp_path / "toolgate.toml"
    if content is not None:
        toml.write_text(content)
    [fault] = faults_of({"GATEWAY_CONFIG": str(toml)})
    assert str(toml) in fault


def test_an_address_without_v1_is_a_warning():
    assert load({"UPSTREAM_URL": "http://h:1"}).warnings
    assert not load({"UPSTREAM_URL": "http://h:1/v1/"}).warnings


def test_the_metrics_port_must_differ():
    assert faults_of({"GATEWAY_PORT": "9464"})[0].startswith("METRICS_PORT")


def test_options_and_limits_follow_the_settings():
    settings = load(
        {
            "TRANSFORM_MIN_CONFIDENCE": "0.85",
            "TOOL_CALLING_MAX_CALL_BYTES": "2 KiB",
            "TOOL_CALLING_MAX_TOOLS": "7",
            "TRAILING_TEXT": "keep",
            "XML_RESULT_FORMAT": "plain",
            "UPSTREAM_MAX_EVENT_BYTES": "1 MiB",
        }
    )
    options = settings.strategy_options("hermes")
    assert (options.dialect, options.min_confidence, options.trailing_text) == ("hermes", 85, "keep")
    assert (options.result_format, options.recovery_shell) == ("plain", False)
    assert options.limits == settings.limits()
    assert (options.limits.max_call_bytes, options.limits.max_tools) == (2048, 7)
    assert options.limits.max_event_bytes == 1 << 20


def test_two_configurations_have_two_digests():
    assert load({}).digest() == load({}).digest()
    assert load({}).digest() != load({"GATEWAY_PORT": "1"}).digest()


def test_every_value_shown_can_be_set_again():
    settings = load(UPSTREAM | {"GATEWAY_DRAIN_S": "2.5", "TOOL_CALLING_MAX_CALL_BYTES": "3000"})
    again = {name: value for name, value, _ in describe(settings) if value}
    assert attrs.evolve(load(again), sources={}) == attrs.evolve(settings, sources={})


def test_the_reference_names_every_setting_once_and_no_later_one():
    table = settings_table_markdown()
    for name in NAMES:
        assert table.count(f"| `{name}` |") == 1
    for later in LATER:
        assert f"`{later.name}`" not in table
    assert all(entry.help.endswith((".", "default.")) for entry in DECLARED)


WORDS = st.text(alphabet="AB_C", max_size=8)


def plain_distance(left: str, right: str) -> int:
    """The textbook recurrence, without bounds or short cuts."""
    table = [[max(row, column) if 0 in (row, column) else 0 for column in range(9)] for row in range(9)]
    for row in range(1, len(left) + 1):
        for column in range(1, len(right) + 1):
            same = left[row - 1] == right[column - 1]
            best = min(table[row - 1][column], table[row][column - 1], table[row - 1][column - 1] - same) + 1
            if row > 1 and column > 1 and left[row - 2 : row] == right[column - 2 : column][::-1]:
                best = min(best, table[row - 2][column - 2] + 1)
            table[row][column] = best
    return table[len(left)][len(right)]


@given(WORDS, WORDS, st.integers(0, 3))
def test_the_distance_is_the_textbook_distance(left, right, limit):
    expected = plain_distance(left, right)
    assert distance_within(left, right, limit) == (expected if expected <= limit else None)


def test_a_swap_of_neighbours_is_one_edit():
    assert distance_within("GATEWAY_PROT", "GATEWAY_PORT", 2) == 1
    assert nearest("GATEWAY_PROT", NAMES, within=2) == "GATEWAY_PORT"
    assert nearest("ABSOLUTELY_NOT", NAMES, within=2) is None
