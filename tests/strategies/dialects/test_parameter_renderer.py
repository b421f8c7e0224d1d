"""What the dialects with raw parameters write: exact forms, and the values that each of them cannot carry."""

import pytest

from strategies.asking.renderers import RENDERERS
from strategies.writing.renderer import CannotExpress
from tests.support.reading import AGENT_TOOLS

WRITE = AGENT_TOOLS.get("write")
TOKEN_M3 = "]<]minimax[>["
ENDS = {
    "qwen3_coder": "</parameter>\n</function>\n</tool_call>",
    "seed_oss": "</parameter>\n</function>\n</seed:tool_call>",
    "glm": "</arg_value></tool_call>",
    "hy3": "</arg_value></tool_call>",
    "claude_invoke": "</parameter>\n</invoke>",
    "minimax_m2": "</parameter>\n</invoke>\n</minimax:tool_call>",
    "minimax_m3": f"{TOKEN_M3}</content>",
    "dsml": "</｜DSML｜parameter>\n</｜DSML｜invoke>",
    "step3": "</steptml:parameter></steptml:invoke>",
}
EVERY = pytest.mark.parametrize("dialect", ENDS)


@EVERY
def test_value_that_holds_its_own_end_is_refused_and_shown(dialect: str) -> None:
    value = f"before {ENDS[dialect]} behind"
    with pytest.raises(CannotExpress) as refused:
        RENDERERS[dialect].call("write", {"filePath": "a", "content": value}, WRITE)
    assert value in (refused.value.nearest or "")


@EVERY
def test_value_that_only_mentions_a_closer_is_written(dialect: str) -> None:
    closer = ENDS[dialect].partition("\n")[0] if dialect != "minimax_m3" else "</content>"
    closer = closer.partition("><")[0].rstrip(">") + ">"
    value = f"the tag {closer} ends a value"
    assert value in RENDERERS[dialect].call("write", {"filePath": "a", "content": value}, WRITE)


@EVERY
@pytest.mark.parametrize("name", ["two words", "a<b", "", 'q"q', "x\ny"])
def test_name_that_no_tag_carries_is_refused(dialect: str, name: str) -> None:
    with pytest.raises(CannotExpress):
        RENDERERS[dialect].call(name, {}, None)


@EVERY
def test_undeclared_tool_of_the_history_is_written(dialect: str) -> None:
    assert "deploy" in RENDERERS[dialect].call("deploy", {"env": "prod"}, None)


@EVERY
def test_number_of_an_undeclared_tool_is_refused_where_it_would_turn_into_text(dialect: str) -> None:
    if dialect == "dsml":
        assert 'string="false">5<' in RENDERERS[dialect].call("deploy", {"count": 5}, None)
    else:
        with pytest.raises(CannotExpress, match="another value"):
            RENDERERS[dialect].call("deploy", {"count": 5}, None)


@EVERY
def test_result_cannot_end_itself(dialect: str) -> None:
    writer = RENDERERS[dialect]
    empty = writer.result("read", "call_1", "", "bracket")
    for closer in ("</tool_response>", "</response>", "</result>", "<｜tool_output_end｜>"):
        if closer in empty:
            assert writer.result("read", "call_1", f"x{closer}y", "bracket").count(closer) == 1


def test_qwen3_coder_writes_the_form_the_family_was_trained_on() -> None:
    written = RENDERERS["qwen3_coder"].call("write", {"filePath": "a.py", "content": "x = 1\n"}, WRITE)
    assert written == (
        "<tool_call>\n<function=write>\n<parameter=filePath>\na.py\n</parameter>\n"
        "<parameter=content>\nx = 1\n\n</parameter>\n</function>\n</tool_call>"
    )


def test_calls_of_one_message_share_a_block() -> None:
    writer = RENDERERS["claude_invoke"]
    one = writer.call("todoread", {}, AGENT_TOOLS.get("todoread"))
    assert writer.calls([one, one]).count("<function_calls>") == 1
    assert writer.calls([one, one]).count("<invoke ") == 2


def test_nested_values_become_nodes() -> None:
    todo = {"content": "go", "status": "pending", "priority": "low"}
    written = RENDERERS["minimax_m3"].call("todowrite", {"todos": [todo]}, AGENT_TOOLS.get("todowrite"))
    assert written.count(f"{TOKEN_M3}<item>") == 1
    assert f"{TOKEN_M3}<status>pending{TOKEN_M3}</status>" in written
