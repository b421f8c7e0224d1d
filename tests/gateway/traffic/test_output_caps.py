"""What servers say of the length that was asked for, and how long that holds."""

import pytest

from gateway.traffic.absent_paths import ABSENT_S, AbsentPaths
from gateway.traffic.output_caps import CAP_S, OutputCap, OutputCaps, cap_in

# In the words of OpenAI, vLLM (older and newer), Anthropic, Groq, DeepSeek, text-generation-inference and SGLang.
WORDS = [
    (
        "max_tokens is too large: 32000. This model supports at most 16384 completion tokens",
        OutputCap(output=16384),
        16384,
    ),
    (
        "This model's maximum context length is 8192 tokens. However, you requested 33000 tokens (1000 in the "
        "messages, 32000 in the completion). Please reduce the length of the messages or completion.",
        OutputCap(context=8192),
        7192,
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 8192 "
        "tokens and your request has 1000 input tokens (32000 > 8192 - 1000).",
        OutputCap(context=8192),
        7192,
    ),
    (
        "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku",
        OutputCap(output=8192),
        8192,
    ),
    ("`max_tokens` must be less than or equal to `8192`, the maximum value", OutputCap(output=8192), 8192),
    ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", OutputCap(output=8192), 8192),
    (
        "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 20 `inputs` tokens and 32000 `max_new_tokens`",
        OutputCap(context=4097),
        4077,
    ),
    (
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of "
        "33000 tokens: 1000 tokens from the input messages and 32000 tokens for the completion.",
        OutputCap(context=8192),
        7192,
    ),
]


@pytest.mark.parametrize(("words", "cap", "instead"), WORDS)
def test_a_servers_words_give_the_cap(words: str, cap: OutputCap, instead: int) -> None:
    assert cap_in(words, 32_000) == (cap, instead)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "odd field",
        "max_tokens must be positive",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        "This model's maximum context length is 8192 tokens. However, you requested 41000 tokens (9000 in the "
        "messages, 32000 in the completion).",
        "max_tokens is too large: 32000. This model supports at most 64000 completion tokens",
    ],
)
def test_words_of_something_else_give_none(words: str) -> None:
    assert cap_in(words, 32_000) is None


def test_a_cap_holds_for_an_hour() -> None:
    caps = OutputCaps()
    caps.learn("u", "m", OutputCap(output=5), 100.0)
    assert caps.recall("u", "m", 100.0 + CAP_S - 1) == OutputCap(output=5)
    assert caps.recall("u", "m", 100.0 + CAP_S) is None
    assert caps.recall("u", "other", 100.0) is None


def test_a_context_leaves_what_the_request_does_not_take() -> None:
    assert OutputCap(context=8192).most(1000) == 7192
    assert OutputCap(context=8192).most(9000) == 16
    assert OutputCap(output=100, context=8192).most(1000) == 100
    assert OutputCap().most(1000) is None


def test_a_path_that_is_missing_is_known_for_an_hour() -> None:
    absent = AbsentPaths()
    absent.note("u", "messages", 100.0)
    assert absent.has("u", "messages", 100.0 + ABSENT_S - 1)
    assert not absent.has("u", "messages", 100.0 + ABSENT_S)
    assert not absent.has("u", "responses", 100.0)
