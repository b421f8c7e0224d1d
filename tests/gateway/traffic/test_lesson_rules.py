"""What is learned of upstreams: their refusals in their own words, and calls that come in a bad shape."""

import json
from typing import Any

import pytest

from gateway.traffic.absent_paths import ABSENT_S, AbsentPaths
from gateway.traffic.lesson_rules import (
    ENOUGH,
    LESSON_S,
    MAX_PAIRS,
    TRIAL,
    Fault,
    Lessons,
    NativeEvidence,
    NativeRecord,
    _refusals,
    quotes_refusal,
    refuses_tools,
)
from gateway.traffic.output_caps import CAP_S, OutputCap, OutputCaps, cap_in
from gateway.traffic.rescues import CURED, ONE_IN, PAUSE_S, UNCURED, WINDOW, Rescues
from gateway.traffic.token_ratios import IMAGE_TOKENS, NEEDED, SAMPLES, ContextCuts, TokenRatios
from gateway.traffic.token_ratios import MAX_PAIRS as MAX_CUTS

OPENROUTER = (
    'No endpoints found that support tool use. Try disabling "question". To learn more about provider routing, '
    "visit: https://openrouter.ai/docs/guides/routing/provider-selection"
)

VLLM = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'

REFUSALS: list[tuple[int, Any]] = [
    (400, {"error": {"message": "registry.ollama.ai/library/gemma3:4b does not support tools", "type": "api_error"}}),
    (400, {"error": "registry.ollama.ai/library/Qwen3.5:0.8b does not support tools"}),
    (400, {"object": "error", "message": VLLM, "type": "BadRequestError", "param": None, "code": 400}),
    (400, {"error": {"message": VLLM, "type": "BadRequestError", "param": None, "code": 400}}),
    (400, {"error": {"message": 'tool_choice="required" requires --tool-call-parser to be set'}}),
    (404, {"error": {"message": OPENROUTER, "code": 404}}),
    (500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}),
    (500, {"code": 500, "message": "Unsupported param: tools", "type": "server_error"}),
    (400, {"error": {"message": "`tool calling` is not supported with this model", "type": "invalid_request_error"}}),
    (400, {"error": {"message": "deepseek-reasoner does not support Function Calling"}}),
    (400, {"error": {"code": 400, "message": "Tool use with function calling is unsupported"}}),
    (400, {"error": {"message": "Function calling is not enabled for this model"}}),
    (400, {"message": "This model doesn't support tool use in streaming mode."}),
    (400, {"error": {"message": "<400> InternalError.Algo.InvalidParameter: The tool call is not supported."}}),
    (400, {"error": {"message": "Unsupported parameter: 'tools' is not supported with this model.", "param": "tools"}}),
    (400, {"error": {"message": "Unrecognized request argument supplied: tools"}}),
    (400, {"error": {"message": "Provider returned error", "metadata": {"raw": "m does not support tools"}}}),
    (422, {"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs are not permitted", "type": "extra"}]}),
    (422, {"detail": "Tools are not supported."}),
]

OTHER_ERRORS: list[tuple[int, Any]] = [
    (400, {"error": {"message": "tools[0].function.parameters is not supported: unknown type"}}),
    (400, {"error": {"message": "Unknown parameter: 'tools[0].function.strict'."}}),
    (400, {"error": {"message": "This model does not support parallel tool calls"}}),
    (400, {"error": {"message": "this model does not support tool_choice 'required'"}}),
    (404, {"error": {"message": "No endpoints found that support the provided 'tool_choice' value."}}),
    (400, {"error": {"message": "deepseek-reasoner does not support this tool_choice"}}),
    (400, {"error": {"message": "the keyword 'oneOf' in tools is not supported"}}),
    (400, {"error": {"message": "This model's maximum context length is 8192 tokens", "code": "context_length"}}),
    (422, {"detail": [{"loc": ["body", "tools", 0, "strict"], "msg": "Extra inputs are not permitted"}]}),
    (422, {"detail": [{"loc": ["body", "x"], "msg": "bad", "input": "it does not support tools"}]}),
    (404, {"error": {"message": "The model `nope` does not exist", "code": "model_not_found"}}),
    (429, {"error": {"message": "m does not support tools"}}),
    (503, {"error": {"message": "m does not support tools"}}),
    (400, ["does not support tools"]),
    (400, {"error": {"message": 5}, "message": ["does not support tools"], "detail": [1, {"msg": 2}]}),
]


@pytest.mark.parametrize(("status", "body"), REFUSALS)
def test_real_refusals_are_recognised(status: int, body: Any) -> None:
    assert refuses_tools(status, json.dumps(body).encode())


@pytest.mark.parametrize(("status", "body"), OTHER_ERRORS)
def test_other_errors_are_not_taken_for_refusals(status: int, body: Any) -> None:
    assert not refuses_tools(status, json.dumps(body).encode())


@pytest.mark.parametrize("payload", [None, b"", b"does not support tools", b'{"error"', b"[" * 100_000])
def test_what_is_no_json_object_refuses_nothing(payload: bytes | None) -> None:
    assert not refuses_tools(400, payload)


@pytest.mark.parametrize(("status", "body"), REFUSALS)
def test_a_refusal_that_stands_in_the_request_is_a_quotation(status: int, body: Any) -> None:
    payload = json.dumps(body).encode()
    assert not quotes_refusal(status, payload, b'{"model": "m", "tools": [{"function": {"name": "tools"}}]}')
    asked = json.dumps({"messages": [{"role": "user", "content": " ".join(_refusals(status, payload))}]}).encode()
    assert quotes_refusal(status, payload, asked)
    assert quotes_refusal(status, payload, asked.replace(b"o", b"\\u006f").replace(b" ", b"\\n "))


def test_a_lesson_holds_for_an_hour_for_this_model_at_this_upstream() -> None:
    lessons = Lessons()
    lessons.learn("default", "m", "refused", 100.0)
    lesson = lessons.recall("default", "m", 100.0 + LESSON_S - 1)
    assert lesson is not None
    assert lesson.reason == "refused"
    assert lessons.recall("default", "m", 100.0 + LESSON_S) is None
    assert lessons.recall("default", "other", 100.0) is None
    assert lessons.recall("other", "m", 100.0) is None


def test_names_that_clients_make_up_do_not_fill_the_memory() -> None:
    lessons, record = Lessons(), NativeRecord()
    for number in range(MAX_PAIRS + 10):
        lessons.learn("default", f"m{number}", "refused", 0.0)
        record.observe("default", f"m{number}", "as_text", 0.0, window=5, percent=50)
    assert lessons.recall("default", "m9", 0.0) is None
    assert lessons.recall("default", f"m{MAX_PAIRS}", 0.0) is not None
    assert len(record._answers) == MAX_PAIRS


BAD: Fault = "bad_arguments"

TEXT: Fault = "as_text"


def observed(*faults: Fault | None, window: int = 4, percent: int = 50, seconds: float = 1.0) -> list[Fault | None]:
    record = NativeRecord()
    return [
        record.observe("default", "m", fault, at * seconds, window=window, percent=percent)
        for at, fault in enumerate(faults)
    ]


def test_nothing_is_learned_before_the_window_is_full() -> None:
    assert observed(TEXT, TEXT, TEXT) == [None, None, None]
    assert observed(TEXT, TEXT, TEXT, BAD)[-1] == TEXT


def test_the_share_of_the_last_answers_decides() -> None:
    faults = observed(None, None, None, TEXT, BAD, BAD)
    assert faults == [None, None, None, None, TEXT, None]
    assert observed(*[TEXT, None, None, None] * 5) == [None] * 20


def test_a_rate_of_all_allows_no_good_answer() -> None:
    assert observed(*[TEXT] * 4, percent=100)[-1] == TEXT
    assert observed(None, *[TEXT] * 3, percent=100)[-1] is None


def test_answers_of_long_ago_do_not_count() -> None:
    assert observed(*[TEXT] * 4, seconds=LESSON_S / 3) == [None] * 4


def test_after_a_lesson_it_begins_anew() -> None:
    assert observed(*[TEXT] * 8) == [None, None, None, TEXT] * 2


# --- When a model counts as one that calls natively, and when no longer


def test_twenty_good_calls_teach_and_a_bad_one_begins_anew() -> None:
    known = NativeEvidence()
    told = [known.observe("a", "m", calls=2, is_bad=False, is_learned=False) for _ in range(ENOUGH // 2)]
    assert told == [*[None] * (ENOUGH // 2 - 1), "learned"]
    for _ in range(ENOUGH - 1):
        assert known.observe("a", "n", calls=1, is_bad=False, is_learned=False) is None
    assert known.observe("a", "n", calls=1, is_bad=True, is_learned=False) is None
    assert known.observe("a", "n", calls=ENOUGH - 1, is_bad=False, is_learned=False) is None
    assert known.observe("a", "n", calls=1, is_bad=False, is_learned=False) == "learned"


def test_one_bad_among_the_next_fifty_ends_it() -> None:
    known = NativeEvidence()
    assert known.observe("a", "m", calls=TRIAL - 1, is_bad=False, is_learned=True) is None
    assert known.observe("a", "m", calls=1, is_bad=True, is_learned=True) == "ended"


def test_later_one_is_forgiven_and_two_are_not() -> None:
    known = NativeEvidence()
    for _ in range(TRIAL + 1):
        assert known.observe("a", "m", calls=1, is_bad=False, is_learned=True) is None
    assert known.observe("a", "m", calls=1, is_bad=True, is_learned=True) is None
    for _ in range(TRIAL):
        assert known.observe("a", "m", calls=1, is_bad=False, is_learned=True) is None
    assert known.observe("a", "m", calls=1, is_bad=True, is_learned=True) is None
    assert known.observe("a", "m", calls=0, is_bad=True, is_learned=True) == "ended"


def test_answers_without_calls_say_nothing() -> None:
    known = NativeEvidence()
    for _ in range(99):
        assert known.observe("a", "m", calls=0, is_bad=False, is_learned=False) is None


# --- How often a swallowed turn is asked again, and when a model is better prompted at once


def test_after_so_many_in_vain_one_in_twenty_is_asked_for_ten_minutes() -> None:
    rescues = Rescues()
    for _ in range(UNCURED):
        assert rescues.may_ask("a", "m", "silent", 0.0)
        rescues.asked("a", "m", "silent", 0.0, is_cured=False)
    asked = [rescues.may_ask("a", "m", "silent", 1.0) for _ in range(2 * ONE_IN)]
    assert asked == [*[False] * (ONE_IN - 1), True] * 2
    assert rescues.may_ask("a", "m", "peg_format", 1.0), "another face"
    assert rescues.may_ask("a", "other", "silent", 1.0)
    assert rescues.may_ask("a", "m", "silent", PAUSE_S)
    assert PAUSE_S == 600


def test_a_cure_ends_the_row() -> None:
    rescues = Rescues()
    for cured in (False,) * (UNCURED - 1) + (True,) + (False,) * (UNCURED - 1):
        rescues.asked("a", "m", "silent", 0.0, is_cured=cured)
    assert rescues.may_ask("a", "m", "silent", 0.0)
    rescues.asked("a", "m", "silent", 0.0, is_cured=False)
    assert not rescues.may_ask("a", "m", "silent", 0.0)
    rescues.asked("a", "m", "silent", 0.0, is_cured=True)
    assert rescues.may_ask("a", "m", "silent", 0.0)


def test_three_cures_in_twenty_answers_teach() -> None:
    rescues = Rescues()
    assert [rescues.answered("a", "m", is_cured=True) for _ in range(CURED)] == [False, False, True]
    assert not rescues.answered("a", "m", is_cured=True), "from then on anew"
    for _ in range(WINDOW - 1):
        assert not rescues.answered("a", "m")
    assert not rescues.answered("a", "m", is_cured=True)
    assert not rescues.answered("a", "m", is_cured=True), "the first is no longer among the last"


def test_usage_is_asked_for_where_it_is_known_not_to_come_unasked() -> None:
    rescues = Rescues()
    assert not rescues.may_ask_usage("a")
    rescues.saw_usage("a", is_told=False)
    assert rescues.may_ask_usage("a")
    rescues.refused_usage("a")
    assert not rescues.may_ask_usage("a")
    rescues.saw_usage("b", is_told=True)
    rescues.saw_usage("b", is_told=False)
    assert not rescues.may_ask_usage("b")


def test_simpler_tools_are_remembered_until_then() -> None:
    rescues = Rescues()
    rescues.learn_simpler("a", "m", 10.0)
    assert rescues.wants_simpler("a", "m", 9.0)
    assert not rescues.wants_simpler("a", "m", 10.0)
    assert not rescues.wants_simpler("a", "n", 0.0)


def test_names_that_clients_choose_are_bounded() -> None:
    rescues = Rescues()
    for number in range(MAX_PAIRS + 9):
        rescues.asked("a", f"m{number}", "silent", 0.0, is_cured=False)
        rescues.answered("a", f"m{number}")
        rescues.learn_simpler("a", f"m{number}", 1.0)
    assert len(rescues._faces) == len(rescues._answers) == len(rescues._simpler) == MAX_PAIRS


# --- When a server reads less of a prompt than it is sent


def test_far_fewer_tokens_than_the_bytes_can_mean() -> None:
    cuts = ContextCuts()
    for number in range(NEEDED):
        assert cuts.observe("a", "m", size=4_000 + 400 * number, tokens=1_000 + 100 * number) is None
    assert cuts.observe("a", "m", size=40_000, tokens=9_000) is None
    found = cuts.observe("a", "m", size=40_000, tokens=2_500)
    assert found is not None
    assert (found.at, found.sent) == (2_500, 10_000)
    assert cuts.of("a", "m") == found
    assert cuts.of("a", "other") is None


@pytest.mark.parametrize("figure", [2_048, 4_096, 4_095, 8_192])
def test_the_same_round_figure_three_times(figure: int) -> None:
    cuts = ContextCuts()
    found = [cuts.observe("a", "m", size=size, tokens=figure) for size in (30_000, 40_000, 50_000)]
    assert [cut is not None for cut in found] == [False, False, True]


def test_figures_that_are_not_round_or_long_ago_say_nothing() -> None:
    cuts = ContextCuts()
    assert not any(cuts.observe("a", "m", size=9_000, tokens=3_000) for _ in range(9))
    for _ in range(5):
        assert cuts.observe("a", "n", size=16_000, tokens=4_096) is None
        for other in range(20):
            assert cuts.observe("a", "n", size=4_000 + other, tokens=1_100 + other) is None
    assert cuts.observe("a", "m", size=0, tokens=4_096) is None


def test_names_whose_contexts_are_noted_are_bounded() -> None:
    cuts = ContextCuts()
    for number in range(MAX_CUTS + 5):
        cuts.observe("a", f"m{number}", size=9, tokens=3)
    assert len(cuts._seen) == MAX_CUTS


# --- What servers say of the length that was asked for, and how long that holds


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


# --- What a request takes in tokens, by what answers have told of others


def test_before_any_answer_it_is_an_estimate_on_the_safe_side() -> None:
    assert TokenRatios().tokens("u", "m", 3600) == (1050, False)


def test_the_median_of_the_last_answers_counts() -> None:
    ratios = TokenRatios()
    for size, tokens in ((400, 100), (400, 100), (6000, 100)):
        ratios.observe("u", "m", size, tokens)
    assert ratios.tokens("u", "m", 4000) == (1050, True)
    assert ratios.tokens("u", "other", 3600) == (1050, False)
    for _ in range(SAMPLES):
        answers = ratios.observe("u", "m", 200, 100)
    assert (ratios.known("u", "m"), answers) == ([2.0] * SAMPLES, SAMPLES + 3)


def test_pictures_are_counted_by_the_piece() -> None:
    assert TokenRatios().tokens("u", "m", 0, images=2) == (2 * IMAGE_TOKENS, False)


@pytest.mark.parametrize(("size", "tokens"), [(1, 1000), (1_000_000, 1), (10, 0), (10, -1)])
def test_what_no_tokenizer_makes_is_not_learned(size: int, tokens: int) -> None:
    ratios = TokenRatios()
    assert ratios.observe("u", "m", size, tokens) == 0
    assert ratios.known("u", "m") == ratios.known("other", "m") == []
    assert ratios.observe("u", "m", 400, 100) == 1
    assert ratios.observe("u", "m", size, tokens) == 0, "what was learned before is not learned again"


def test_what_another_process_has_learned_is_taken_over_and_odd_figures_are_not() -> None:
    ratios = TokenRatios()
    assert not ratios.knows("u", "m")
    ratios.load("u", "m", [4.0, "x", None, float("nan"), 1e9])
    assert ratios.knows("u", "m")
    assert ratios.tokens("u", "m", 4000) == (1050, True)
