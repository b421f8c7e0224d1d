"""The command line: what it prints, where, and with which exit code."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gateway.cli.root import cli
from gateway.config.load import DECLARED, load
from gateway.config.urls import listening_url
from gateway.core.version import __version__
from gateway.demo.script import MODELS
from gateway.process.banner import banner
from gateway.rereading.reading import pieces

CALL = "Let me look.\n\n<get_weather>\n<city>Paris</city>\n</get_weather>"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def run(*arguments: str, environ: Mapping[str, str | None] | None = None, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, env=environ, input=text, catch_exceptions=False)


@pytest.fixture
def tools_file(tmp_path: Path) -> str:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return str(path)


def test_alone_it_prints_its_help():
    result = run()
    assert result.exit_code == 0
    for command in ("serve", "check", "try", "settings", "version"):
        assert re.search(rf"^  {command} ", result.stdout, re.MULTILINE)


def test_the_list_of_commands_says_of_each_what_it_says_of_itself():
    listed = " ".join(run("--help").stdout.partition("Commands:")[2].split())
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert f"{name} {command.get_short_help_str(200)}" in listed


@pytest.mark.parametrize("command", ["serve", "check", "try", "settings", "version"])
def test_every_command_has_help_with_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert f"toolgate {command}" in result.stdout


@pytest.mark.parametrize("arguments", [["nonsense"], ["check", "--nonsense"], ["try", "/no/such/file"]])
def test_wrong_usage_exits_with_2(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage" in result.stderr
    assert not result.stdout


def test_the_version_is_printed_both_ways():
    assert __version__ in run("version").stdout
    assert __version__ in run("--version").stdout


def test_check_prints_every_setting_and_no_secret():
    result = run("check", "--all", environ={"UPSTREAM_URL": "http://127.0.0.1:1/v1", "UPSTREAM_API_KEY": "canary"})
    assert result.exit_code == 0, result.stderr
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[0] for row in rows] == [entry.name for entry in DECLARED]
    assert ["UPSTREAM_API_KEY", "********", "environment"] in rows
    assert "canary" not in result.output


def test_check_prints_what_the_tables_say_and_no_secret(tmp_path):
    toml = tmp_path / "toolgate.toml"
    toml.write_text(
        "[upstreams.a]\nurl = 'http://a/v1'\nmodels = ['qwen*', 'glm*']\napi_key = 'canary'\nidle_timeout_s = 30\n"
        "[upstreams.b]\nurl = 'http://b'\nkind = 'qwen_web'\ncookies = 'x=canary'\n"
        "[upstreams.b.qwen_web]\nextra_fields = {token = 'canary'}\n"
        "[[models]]\nmatch = 'gpt-*'\nupstream = 'a'\nfallback = 'b'\n"
    )
    result = run("check", environ={"GATEWAY_CONFIG": str(toml)})
    assert result.exit_code == 0, result.stderr
    told = {name: value for name, value, _ in (line.split("\t") for line in result.stdout.splitlines())}
    assert told["upstreams.a"] == "http://a/v1 kind=openai api_key=******** models=qwen*,glm* idle_timeout_s=30"
    assert told["upstreams.b"] == "http://b kind=qwen_web cookies=********"
    assert "create_path=/api/v2/chats/new" in told["upstreams.b.qwen_web"]
    assert "extra_fields=token" in told["upstreams.b.qwen_web"]
    assert told["models.gpt-*"] == "upstream=a fallback=b intent=count"
    assert "canary" not in result.output


def test_check_prints_every_fault_and_exits_with_78():
    result = run("check", environ={"GATEWAY_PORT": "x", "CANARY_PERCENT": "500", "STRATEGY_RULES": "*=nonsense"})
    assert result.exit_code == 78
    assert len(re.findall("^fault: ", result.stderr, re.MULTILINE)) == 3
    assert "nonsense" in result.stderr
    assert "GATEWAY_PORT" in result.stdout


def test_check_prints_where_it_would_be_and_what_was_set_and_no_more():
    result = run("check", environ={"UPSTREAM_URL": "http://127.0.0.1:11434/v1", "GATEWAY_PORT": "9000"})
    assert result.stdout.splitlines() == [
        "base URL\thttp://127.0.0.1:9000/v1\t",
        "model server\thttp://127.0.0.1:11434/v1\t",
        "GATEWAY_PORT\t9000\tenvironment",
        "UPSTREAM_URL\thttp://127.0.0.1:11434/v1\tenvironment",
    ]


def test_check_names_the_nearest_dialect():
    result = run("check", environ={"STRATEGY_RULES": "qwen*=xml_prompt:hermess"})
    assert "is hermes meant?" in result.stderr


def test_check_says_that_the_kill_switch_is_on(tmp_path):
    switch = tmp_path / "off"
    environ = {"KILL_SWITCH_FILE": str(switch)}
    assert "KILL_SWITCH" not in run("check", environ=environ).stderr
    switch.touch()
    assert "everything is relayed untouched" in run("check", environ=environ).stderr
    assert "everything is relayed untouched" in run("check", environ={"KILL_SWITCH": "true"}).stderr


@pytest.mark.parametrize("pasted", ["/chat/completions", "/models"])
def test_check_knows_an_address_that_was_copied_along(pasted):
    result = run("check", environ={"UPSTREAM_URL": f"http://127.0.0.1:1/v1{pasted}"})
    assert f"UPSTREAM_URL ends in {pasted}" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell):
    told = run("completion", shell).stdout
    assert "_TOOLGATE_COMPLETE" in told
    assert "toolgate" in told


def test_commands_and_options_are_completed():
    for words, wanted in (("toolgate ro", "rollout"), ("toolgate serve --up", "--upstream")):
        environ = process_environment(
            _TOOLGATE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" "))
        )
        done = subprocess.run(
            [sys.executable, "-m", "gateway"], env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert f"plain,{wanted}" in done.stdout.splitlines(), done


def test_check_as_json_is_one_document():
    result = run("check", "--json", environ={"GATEWAY_PROT": "1", "UPSTREAM_URL": "http://127.0.0.1:1"})
    document = json.loads(result.stdout)
    assert result.exit_code == 78
    assert document["schema_version"] == 1
    assert document["ok"] is False
    assert "GATEWAY_PORT" in document["faults"][0]
    assert "/v1" in document["warnings"][0]
    assert {"name": "GATEWAY_PORT", "value": "8080", "source": "default"} in document["settings"]


def test_settings_lists_all_of_them():
    lines = run("settings").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == [entry.name for entry in DECLARED]
    assert "| `GATEWAY_PORT` | `8080` |" in run("settings", "--markdown").stdout


def test_try_shows_the_call_its_score_and_reasons(tools_file):
    result = run("try", "--tools", tools_file, text=CALL)
    assert result.exit_code == 0
    assert 'call get_weather {"city":"Paris"}' in result.stdout
    assert re.search(r"score 0\.9\d, dialect \w+: \S", result.stdout)
    assert "    Let me look." in result.stdout
    assert result.stdout.endswith("1 call.\n")


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_try_says_the_same_however_the_answer_is_cut(tools_file, count):
    whole = run("try", "--tools", tools_file, "--json", text=CALL)
    assert run("try", "--tools", tools_file, "--json", "--chunks", str(count), text=CALL).stdout == whole.stdout
    document = json.loads(whole.stdout)
    assert document["schema_version"] == 1
    [call] = document["calls"]
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Paris"})


def test_try_knows_the_tools_of_common_agents(tmp_path):
    answer = tmp_path / "answer.txt"
    answer.write_text("<read_file>\n<path>src/a.py</path>\n</read_file>")
    assert 'call read_file {"path":"src/a.py"}' in run("try", str(answer)).stdout


def test_try_says_why_a_candidate_stays_text(tools_file):
    result = run("try", "--tools", tools_file, text="<get_weather>\n<city>Paris\n</get_weather>")
    assert "not a call get_weather" in result.stdout
    assert "0.85 is below 0.90: a value was not closed before the call's end" in result.stdout
    assert "TRANSFORM_MIN_CONFIDENCE=0.85" in result.stdout
    accepted = run(
        "try", "--tools", tools_file, "--min-confidence", "0.8", text="<get_weather>\n<city>Paris\n</get_weather>"
    )
    assert 'call get_weather {"city":"Paris"}' in accepted.stdout


def test_try_never_repairs_what_was_cut_off(tools_file):
    assert (
        "0 calls"
        in run("try", "--tools", tools_file, "--finish", "length", text=CALL.removesuffix("</get_weather>")).stdout
    )


def test_try_does_not_let_an_answer_command_the_terminal(tools_file):
    result = run("try", "--tools", tools_file, text="a\x1b[2Jb\x9bc\rd")
    assert not set("\x1b\x9b\r") & set(result.stdout)


@pytest.mark.parametrize("content", ["{", "[1]", '{"tools": 5}', '"x"', "[" * 100_000])
def test_try_refuses_a_tools_file_that_is_none(tmp_path, content):
    path = tmp_path / "tools.json"
    path.write_text(content)
    result = run("try", "--tools", str(path), text=CALL)
    assert result.exit_code == 2
    assert "--tools" in result.stderr


@pytest.mark.parametrize("value", ["2", "x", "0.905", "-0.1"])
def test_try_refuses_a_threshold_that_is_none(value):
    assert run("try", "--min-confidence", value, text=CALL).exit_code == 2


def test_a_dialect_that_is_none_is_a_mistake_of_use():
    result = run("try", "--dialect", "hermess", text=CALL)
    assert result.exit_code == 2
    assert "toolgate dialects" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "variable", "is_coloured"),
    [
        ((), None, False),
        (("--color",), None, True),
        (("--color",), "1", True),
        (("--no-color",), None, False),
        ((), "1", False),
    ],
)
def test_try_has_colours_where_they_are_wanted(arguments, variable, is_coloured):
    result = run("try", *arguments, "-", text=CALL, environ={"NO_COLOR": variable})
    assert ("\x1b[" in result.stdout) == is_coloured


def test_try_refuses_what_is_not_text():
    result = run("try", text=b"\xff\xfe")
    assert result.exit_code == 1
    assert "UTF-8" in result.stderr


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_pieces_are_the_text(count):
    assert "".join(pieces("abcdefghij", count)) == "abcdefghij"
    assert len(pieces("abcdefghij", count)) <= count
    assert pieces("", count) == []


def test_the_banner_has_what_is_needed_and_no_secret():
    settings = load({})
    text = banner(settings, listening_url(settings, 8099))
    assert "http://127.0.0.1:8099" in text
    assert text.count("curl -s http://127.0.0.1:8099/v1/chat/completions") == 2
    for model in MODELS:
        assert model in text
    keyed = load({"GATEWAY_API_KEYS": "canary", "UPSTREAM_URL": "http://h/v1", "UPSTREAM_API_KEY": "canary2"})
    assert "canary" not in banner(keyed, listening_url(keyed))
    assert "1 in force" in banner(keyed, listening_url(keyed))
    several = load({"GATEWAY_WORKERS": "2", "METRICS_HOST": "::1"})
    assert "http://[::1]:9464/metrics and up" in banner(several, listening_url(several))
    anywhere = load({"GATEWAY_WORKERS": "2", "METRICS_PORT": "0"})
    assert "a free port for each worker" in banner(anywhere, listening_url(anywhere))


@pytest.mark.parametrize(
    ("host", "url"),
    [("10.0.0.1", "http://10.0.0.1:8080"), ("::1", "http://[::1]:8080"), ("::", "http://[::1]:8080")],
)
def test_the_address_shown_can_be_opened(host, url):
    assert listening_url(load({"GATEWAY_HOST": host, "UPSTREAM_URL": "http://h/v1"})) == url


def process_environment(**settings: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "METRICS_PORT": "0", **settings}


NOT_LOADED = """
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "gateway.config":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from gateway.cli.root import main
main()
"""


def test_an_interrupt_while_the_program_still_loads_is_no_fault_of_it():
    result = subprocess.run(
        [sys.executable, "-c", NOT_LOADED, "serve"], env=process_environment(), capture_output=True, text=True
    )
    assert result.returncode == 130
    assert "Traceback" not in result.stderr


@pytest.mark.system
@pytest.mark.parametrize("count", ["1", "2"])
def test_serve_says_in_one_line_that_its_host_has_no_address(count):
    environ = process_environment(GATEWAY_HOST="host.invalid", GATEWAY_WORKERS=count, UPSTREAM_URL="http://h/v1")
    environ |= {"STORE_URL": "redis://127.0.0.1:1/0", "GATEWAY_PORT": "0"}
    result = subprocess.run(
        [sys.executable, "-m", "gateway", "serve"], env=environ, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "GATEWAY_HOST: host.invalid has no address: is it spelt right?"
    assert "Traceback" not in result.stderr


def test_serve_says_which_setting_names_no_address_for_the_metrics():
    environ = process_environment(METRICS_HOST="host.invalid", GATEWAY_PORT="0")
    result = subprocess.run(
        [sys.executable, "-m", "gateway", "serve"], env=environ, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 78
    assert result.stderr.splitlines()[-1] == "fault: METRICS_HOST: host.invalid has no address: is it spelt right?"


@contextmanager
def served(**settings: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A gateway in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "serve"],
        env=process_environment(**settings),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            found = re.search(r"listens on (http://\S+)", line)
            if found:
                break
        else:
            pytest.fail("the gateway did not start")
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


def test_serve_lists_every_fault_and_exits_with_78():
    result = run("serve", environ={"GATEWAY_PORT": "x", "GATEWAY_PROT": "1", "STRATEGY_RULES": "*=nosuch"})
    assert result.exit_code == 78
    assert len(re.findall("^fault: ", result.stderr, re.MULTILINE)) == 3


def test_the_commands_are_told_in_whole_sentences():
    for arguments in ((), ("rollout", "--help"), ("report", "--help")):
        _, _, listed = run(*arguments).stdout.partition("Commands:")
        assert listed
        assert "..." not in listed


def test_serve_says_in_one_line_that_its_port_is_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = subprocess.run(
            [sys.executable, "-m", "gateway", "serve"],
            env=process_environment(GATEWAY_PORT=port),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert result.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_answers_as_its_banner_says_and_ends_cleanly(number):
    with served(GATEWAY_PORT="0") as (process, url):
        question = {"role": "user", "content": "What is the weather in Paris?"}
        body = {"model": "demo-xml", "messages": [question], "tools": TOOLS}
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())  # noqa: S310 - our own
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - our own
            [choice] = json.load(response)["choices"]
        assert choice["finish_reason"] == "tool_calls"
        [call] = choice["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
        process.send_signal(number)
        assert process.wait(30) == 0


@pytest.mark.system
@pytest.mark.parametrize("count", ["1", "2"])
def test_on_a_terminal_it_says_why_it_has_not_ended_yet(count, tmp_path: Path):
    terminal, its_end = os.openpty()
    environ = process_environment(GATEWAY_PORT="0", GATEWAY_WORKERS=count, STORE_URL=f"sqlite:///{tmp_path}/store.db")
    shown = ""

    def shows(pattern: str) -> str:
        nonlocal shown
        while not (found := re.search(pattern, shown)):
            shown += os.read(terminal, 65536).decode(errors="replace")
        return found[0]

    with subprocess.Popen([sys.executable, "-m", "gateway", "serve"], env=environ, stderr=its_end) as process:
        os.close(its_end)
        address = shows(r"listens on http://\S+").removeprefix("listens on http://")
        client = http.client.HTTPConnection(address, timeout=30)
        question = {"role": "user", "content": "What is the weather in Paris?"}
        body = {"model": "demo-slow", "stream": True, "messages": [question], "tools": TOOLS}
        client.request("POST", "/v1/chat/completions", json.dumps(body))
        answer = client.getresponse()
        process.send_signal(signal.SIGINT)
        shows("may take up to 60 s more. Ctrl-C again ends them at once")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        answer.close()
        client.close()
    os.close(terminal)


@pytest.mark.system
@pytest.mark.parametrize("columns", [40, 100])
@pytest.mark.parametrize("command", [("check", "--all"), ("settings",)])
def test_a_table_fits_the_terminal_and_loses_no_word(command, columns):
    terminal, its_end = os.openpty()
    environ = process_environment(COLUMNS=str(columns), TERM="xterm", NO_COLOR="1")
    shown = bytearray()
    with subprocess.Popen([sys.executable, "-m", "gateway", *command], env=environ, stdout=its_end) as process:
        os.close(its_end)
        with suppress(OSError):
            while data := os.read(terminal, 65536):
                shown += data
        assert process.wait(20) == 0
    os.close(terminal)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r", "").split("\n")
    assert max(map(len, lines)) <= columns
    assert {entry.name for entry in DECLARED} <= {line.split()[0] for line in lines if line.strip()}
    assert not re.search(r"\x1b\[[0-9;]*[34][0-7]", shown.decode()), "no colour was wanted"
