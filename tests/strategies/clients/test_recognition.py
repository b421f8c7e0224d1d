"""Which client of tags sends a request, where it does not say so itself, and prompts that cannot be taken apart."""

from typing import Any

import msgspec
import pytest

from gateway.core.client import Client
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.clients import recognise
from strategies.clients.profile import Profile
from strategies.clients.roo import ROO
from strategies.clients.text_client import text_client
from tests.support.tag_clients import CLIENTS, CLINE_TOOLS, ROO_TOOLS, prompt

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
