"""The numbers in a server's refusal of a request that is too long."""

import json

import pytest

from gateway.surfaces.too_long import overflow_in, words_of

# In the words of OpenAI, Anthropic, llama.cpp, Gemini, SGLang, Mistral, LM Studio and vLLM.
WORDS = [
    ("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", 9000, 8192),
    ("prompt is too long: 210000 tokens > 200000 maximum", 210_000, 200_000),
    ("request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it", 9000, 8192),
    ("The input token count (9000) exceeds the maximum number of tokens allowed (8192).", 9000, 8192),
    ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", 9000, 8192),
    (
        "Prompt contains 9000 tokens and 0 draft tokens, too large for model with 8192 maximum context length",
        9000,
        8192,
    ),
    (
        "Trying to keep the first 9000 tokens, but the model is loaded with context length of only 4096 tokens",
        9000,
        4096,
    ),
    ("The decoder prompt (length 9000) is longer than the maximum model length of 8192.", 9000, 8192),
]


@pytest.mark.parametrize(("words", "needed", "allowed"), WORDS)
def test_a_servers_words_give_both_numbers(words: str, needed: int, allowed: int) -> None:
    overflow = overflow_in(json.dumps({"error": {"message": words}}).encode())
    assert overflow is not None
    assert (overflow.needed, overflow.allowed, overflow.words) == (needed, allowed, words)


def test_figures_beside_the_words_count() -> None:
    error = {"message": "too big", "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 8192}
    overflow = overflow_in(json.dumps({"error": error}).encode())
    assert overflow is not None
    assert (overflow.needed, overflow.allowed) == (9000, 8192)


def test_words_without_numbers_stay_words() -> None:
    overflow = overflow_in(b'{"error": {"message": "too long", "code": "context_length_exceeded"}}')
    assert overflow is not None
    assert (overflow.needed, overflow.words) == (None, "too long")


@pytest.mark.parametrize("payload", [None, b"", b"[]", b"x", b'{"error": 5}', b'{"error": {"message": "odd field"}}'])
def test_what_speaks_of_something_else_is_none(payload: bytes | None) -> None:
    assert overflow_in(payload) is None


def test_words_are_found_in_any_form() -> None:
    assert words_of(b'{"error": "plain"}')[0] == "plain"
    assert words_of(b'{"message": "flat", "code": "c"}') == ("flat", frozenset({"c"}))
