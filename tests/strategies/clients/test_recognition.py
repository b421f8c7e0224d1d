"""Which client of tags sends a request, where it does not say so itself, and prompts that cannot be taken apart."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gateway.core.client import Client
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.clients import recognise
from strategies.clients.client_parser import Rules, see
from strategies.clients.cline import CLINE
from strategies.clients.profile import Profile
from strategies.clients.prompt_tools import PromptTool, prompt_tools
from strategies.clients.roo import KILO, ROO
from strategies.clients.text_client import text_client
from tests.support.cost import assert_linear
from tests.support.tag_clients import CLIENTS, CLINE_TOOLS, PARAMETERS, ROO_TOOLS, parse, prompt

NOBODY = Client()


def request(*messages: dict[str, Any]) -> ChatRequest:
    return parse_request(msgspec.json.encode({"model": "m", "messages": list(messages)}))


def told(text: object, role: str = "system") -> ChatRequest:
    return request({"role": role, "content": text}, {"role": "user", "content": "go on"})


def profile_of(asked: ChatRequest, client: Client = NOBODY) -> Profile | None:
    found = recognise(asked, client)
    return found.profile if found is not None else None


@pytest.mark.parametrize(("client", "tools"), [("cline", CLINE_TOOLS), ("roo", ROO_TOOLS)])
def test_tools_tell_a_client_whose_prompt_does_not_name_it(client: str, tools: dict[str, list[str]]) -> None:
    text = prompt(client, tools).replace("You are", "Be")
    found = profile_of(told(text))
    assert found is not None
    assert found.id == client


@pytest.mark.parametrize("client", CLIENTS)
def test_a_prompt_that_cannot_be_taken_apart_has_the_tools_whose_tags_it_shows(client: str) -> None:
    """The client has to say who it is; their parameters are the well-known ones."""
    asked = told("TOOL USE\n\nWrite <read_file><path>x</path></read_file> or <list_files>, never <nothing>.")
    assert recognise(asked, NOBODY) is None
    found = recognise(asked, CLIENTS[client])
    assert found is not None
    assert set(found.prompted) == {"read_file", "list_files"}
    assert "path" in found.prompted["list_files"].parameters
    assert found.render("list_files", {"path": "src", "recursive": True}) is not None


@pytest.mark.parametrize("client", CLIENTS)
def test_a_prompt_that_shows_no_tags_has_no_tools(client: str) -> None:
    assert recognise(told("TOOL USE is described elsewhere: read_file, list_files."), CLIENTS[client]) is None


def test_a_prompt_without_tools_makes_no_client() -> None:
    assert text_client(ROO, "Write no tags.", True) is None


def test_a_prompt_in_parts_is_one_prompt() -> None:
    whole = prompt("roo")
    half = len(whole) // 2
    cut = whole.rfind("\n", 0, half)
    parts = [{"type": "text", "text": whole[:cut]}, {"type": "image_url"}, {"type": "text", "text": whole[cut + 1 :]}]
    found = profile_of(told([*parts, "odd"]))
    assert found is not None
    assert found.id == "roo"


@pytest.mark.parametrize("content", [None, 3, {"text": "x"}])
def test_a_prompt_of_another_shape_is_none(content: object) -> None:
    assert recognise(told(content), CLIENTS["roo"]) is None


def test_a_prompt_in_the_users_message_counts_where_the_client_names_itself() -> None:
    asked = request({"role": "user", "content": prompt("cline")})
    assert profile_of(asked) is None
    named = profile_of(asked, CLIENTS["cline"])
    assert named is not None
    assert named.id == "cline"


def test_a_prompt_larger_than_any_clients_is_not_looked_at() -> None:
    assert recognise(told(prompt("roo") + "x" * (1 << 18)), CLIENTS["roo"]) is None


# --- What the clients see: the same as their rules, restated elsewhere, say


PIECES = (
    *("<write_to_file>", "</write_to_file>", "<list_files>", "</list_files>", "<path>", "</path>", "<content>"),
    *("</content>", "<recursive>", "</recursive>", "x", "\n", " ", "\u00a0", "\ufeff", "\x1f", "<", ">", "/", "</"),
)

TOOLS = ("write_to_file", "list_files", "attempt_completion")


@pytest.mark.parametrize("profile", [ROO, KILO, CLINE], ids=lambda profile: profile.id)
def test_it_is_what_the_client_itself_would_see(profile):
    rng = random.Random(profile.id)
    calls = 0
    for _ in range(2000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 24)))
        if rng.random() < 0.7:
            text = f"<write_to_file>\n<path>a</path>\n<content>{text}</content>\n</write_to_file>"
        uses = [use for use in parse(text, profile.id, tools=TOOLS) if not use.partial]
        seen = see(text, profile.rules, TOOLS, PARAMETERS)
        assert (seen.name, seen.values) == (uses[0].name, uses[0].params) if seen else uses == [], text
        calls += seen is not None
    assert calls > 500


def test_a_value_beyond_the_bound_is_lost():
    text = "<list_files>\n<path>{}</path>\n</list_files>"
    rules = Rules(max_value=20)
    for value, kept in (("x" * 13, {"path": "x" * 13}), ("x" * 14, {}), ("\U0001f600" * 7, {})):
        seen = see(text.format(value), rules, TOOLS, PARAMETERS)
        assert seen is not None
        assert seen.values == kept


def test_a_files_outer_fence_and_its_line_numbers_are_taken_off():
    text = "<write_to_file>\n<path>a</path>\n<content>\n{}\n</content>\n</write_to_file>"
    for written, kept in (
        ("```py\nx\n```", "x"),
        ("1 | a\n2 | b", "a\nb"),
        ("1 | a\nb", "1 | a\nb"),
        ("0 || a\n1 || b", "0 || a\n1 || b"),
        ("x```", ""),
    ):
        seen = see(text.format(written), ROO.rules, TOOLS, PARAMETERS)
        assert seen is not None
        assert seen.values["content"] == kept


@pytest.mark.cost
@pytest.mark.parametrize("piece", ["</content>", "<content>", "<path>", "</path>", "<", "x", "</write_to_file"])
def test_it_costs_linear_time(piece):
    def seeing(size: int) -> Callable[[], object]:
        content = piece * (size // len(piece))
        text = f"<write_to_file>\n<path>a</path>\n<content>{content}</content>\n</write_to_file>"
        return lambda: see(text, KILO.rules, TOOLS, PARAMETERS)

    assert_linear(seeing, 1 << 16)


# ---


ONE = """# Tools

## read_file
Description: Request to read.
Parameters:
- path: (required) where
  - inner: (required) not one of its own
- start_line: (optional) from here
- end_line: to here
Usage:
<read_file>
<path>a</path>
<start_line>1</start_line>
</read_file>

Example: the same
<read_file>
<other>b</other>
</read_file>

# Guidelines
- rule: (required) no parameter
"""


def test_a_section_gives_name_parameters_and_what_is_required():
    assert prompt_tools(ONE) == (
        PromptTool(name="read_file", parameters=("path", "start_line", "end_line"), required=frozenset({"path"})),
    )


def test_whole_prompts_give_all_their_tools():
    for client, tools in (("roo", ROO_TOOLS), ("cline", CLINE_TOOLS)):
        found = {tool.name: tool for tool in prompt_tools(prompt(client))}
        assert list(found) == list(tools)
        for name, parameters in tools.items():
            assert found[name].parameters == tuple(parameter.rstrip("*") for parameter in parameters)
            expected = {parameter[:-1] for parameter in parameters if parameter.endswith("*")}
            assert found[name].required == expected


def test_a_section_without_usage_is_no_tool():
    assert prompt_tools("## read_file\nDescription: x\nParameters:\n- path: (required) y\n") == ()
    assert prompt_tools("## Some notes\n<notes>\n</notes>\n") == ()
    assert prompt_tools("") == ()


def test_parameters_that_only_the_usage_shows_are_taken_from_it():
    (tool,) = prompt_tools("## x_tool\nUsage:\n<x_tool>\n<one>\n<two>deep</two>\n</one>\n<three>y</three>\n</x_tool>\n")
    assert tool.parameters == ("one", "three")
    (tool,) = prompt_tools("## x_tool\r\nUsage:\r\n<x_tool>\r\n<one>a</one>\r\n</x_tool>\r\n")
    assert tool.parameters == ("one",)


def test_the_first_section_of_a_name_counts_and_there_are_not_endlessly_many():
    section = "## x{}\nUsage:\n<x{}>\n<a>1</a>\n</x{}>\n"
    assert len(prompt_tools(section.format(1, 1, 1) + section.format(1, 1, 1).replace("<a>", "<b>"))) == 1
    assert len(prompt_tools("".join(section.format(n, n, n) for n in range(1000)))) == 256
