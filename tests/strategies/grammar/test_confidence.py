"""The judge: what each form and each mend counts, and why a draft is refused, in the order in which it is told."""

from typing import Any

import pytest

from gateway.core.reasons import Reason
from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.grammar.confidence import ANNOUNCED, FORMS, UNDECLARED, Judged, base, cost, judge
from strategies.grammar.dialect import Context, Draft
from strategies.text.tolerant_json import CHOSEN
from tests.support.reading import INTEGER, STRING, tool

FIND = tool("find", "pattern", limit=INTEGER)


def context(*tools: Tool, prompted: str | None = None, model: str = "", **options: Any) -> Context:
    return Context(tools=ToolSet(tools or (FIND,)), options=Options(**options), model=model, prompted=prompted)


def judged(
    *mends: str,
    tool: Tool | None = FIND,
    given: dict[str, object] | None = None,
    form: str = "hermes",
    fault: str | None = None,
    within: Context | None = None,
) -> Judged:
    arguments = {"pattern": "x"} if given is None else given
    draft = Draft(name="find", tool=tool, arguments=arguments, form=form, mends=mends, fault=fault)
    return judge(draft, within or context(), "hermes")


@pytest.mark.parametrize("form", FORMS)
def test_each_form_has_its_base_value(form: str) -> None:
    reasons: list[str] = []
    assert base(form, context(), "hermes", reasons) == FORMS[form]
    assert reasons == [f"{form} {FORMS[form]}"]


def test_two_forms_count_what_the_settings_say() -> None:
    within = context(confidence_json_block=91, confidence_shell=77)
    assert [base(form, within, "json_fence", []) for form in ("tool_fence", "shell")] == [91, 77]


def test_the_prompted_dialect_counts_highest_but_not_in_prose() -> None:
    within = context(prompted="hermes")
    assert base("hermes", within, "hermes", []) == FORMS["prompted"]
    assert base("hermes", within, "invoke", []) == FORMS["invoke"]
    assert base("in_prose", within, "hermes", []) == FORMS["in_prose"]


def test_the_models_own_family_counts_one_more_below_the_highest() -> None:
    reasons: list[str] = []
    within = Context(tools=ToolSet([FIND]), options=Options(), family=frozenset({"qwen3_coder"}))
    assert base("function", within, "qwen3_coder", reasons) == FORMS["function"] + 1
    assert reasons[-1] == "family +1"
    assert base("special", within, "qwen3_coder", []) == FORMS["special"]


def test_every_mend_is_told_with_what_it_takes() -> None:
    found = judged("value_closed_by_end", "apostrophes", "brand_new")
    assert found.verdict.score == FORMS["hermes"] - 5 - 2
    assert found.verdict.reasons == ("hermes 97", "value_closed_by_end -5", "apostrophes", "brand_new -2")
    assert found.verdict.accepted


def test_a_mend_that_had_to_choose_costs_more_than_one_that_had_not() -> None:
    assert CHOSEN
    assert {cost(mend) for mend in CHOSEN} == {7}
    assert cost("anything else") == 2 < 7 < cost(ANNOUNCED)
    assert FORMS["special"] - cost(ANNOUNCED) < Options().min_confidence


def test_arguments_that_nobody_declared_cost_and_go_as_far_as_the_schema_takes_them() -> None:
    found = judged(given={"pattern": "x", "mood": "y"})
    assert "unknown_argument -2" in found.verdict.reasons
    assert found.verdict.score == FORMS["hermes"] - 2
    strict = Tool(name="find", parameters={**FIND.parameters, "additionalProperties": False})
    kept = judged(tool=strict, given={"pattern": "x", "mood": "y"}, within=context(strict))
    assert kept.arguments == {"pattern": "x"}
    assert "argument_left_out -2" in kept.verdict.reasons
    assert kept.verdict.score == found.verdict.score


def test_more_unknown_arguments_than_there_is_score_leave_none() -> None:
    found = judged(given={"pattern": "x", **{f"k{number}": "y" for number in range(80)}})
    assert found.verdict.score == 0
    assert found.verdict.refusal is Reason.LOW_CONFIDENCE


@pytest.mark.parametrize(
    ("how", "options", "refusal"),
    [
        ({"given": {}}, {}, Reason.SCHEMA_INVALID),
        ({"fault": "`pattern` is given twice"}, {}, Reason.SCHEMA_INVALID),
        ({}, {"recovery_tools": ("read*",)}, Reason.NOT_LISTED),
        ({}, {"dialects_off": frozenset({"hermes"})}, Reason.SLICE_OFF),
        ({"form": "in_prose"}, {}, Reason.LOW_CONFIDENCE),
        ({"given": {}}, {"recovery_tools": ("read*",)}, Reason.SCHEMA_INVALID),
        ({"form": "in_prose"}, {"recovery_tools": ("read*",)}, Reason.NOT_LISTED),
    ],
)
def test_what_is_refused_says_its_first_reason(how: dict[str, Any], options: dict[str, Any], refusal: Reason) -> None:
    found = judged(within=Context(tools=ToolSet([FIND]), options=Options(**options), restricted=True), **how)
    assert (found.verdict.accepted, found.verdict.refusal) == (False, refusal)


def test_shell_has_a_threshold_of_its_own() -> None:
    low = context(confidence_shell=80, min_confidence=99)
    assert judged(form="shell", within=low).verdict.accepted
    assert not judged(form="hermes", within=low).verdict.accepted
    assert judged(form="shell", within=low).verdict.threshold == 80


def test_a_tool_that_nobody_offered_is_told_as_such() -> None:
    found = judged(tool=None)
    assert UNDECLARED in found.verdict.reasons
    assert found.verdict.name == "find"


def test_only_mends_of_types_leave_what_the_model_wrote() -> None:
    assert judged("typed_string", "null_dropped").is_as_written
    assert not judged("typed_string", "apostrophes").is_as_written


def test_the_argument_with_quotes_inside_is_named_where_they_make_the_doubt() -> None:
    within = context(tool("find", "pattern", note=STRING), min_confidence=97)
    assert judged("inner_quotes", given={"pattern": 'a "b" c'}, within=within).verdict.about == "pattern"
    both: dict[str, object] = {"pattern": 'a "b" c', "note": '"x"'}
    assert judged("inner_quotes", given=both, within=within).verdict.about == ""
    assert judged("apostrophes", "x", given={"pattern": 'a "b" c'}, within=within).verdict.about == ""
