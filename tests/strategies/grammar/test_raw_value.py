"""Raw values between tags: where a document ends when it holds its own closers, and what stands around it."""

import json

import pytest

from tests.support.reading import read, read_every_way

OPEN = "<write>\n<filePath>a</filePath>\n<content>\n"

CLOSE = "\n</content>\n</write>"


def content_of(text: str) -> str | None:
    """The document of the first call; None where there is none."""
    found = read_every_way(text)
    content: str | None = json.loads(found.calls[0][1])["content"] if found.calls else None
    return content


@pytest.mark.parametrize(
    "document",
    [
        "x</limit>",
        "x</filePath> y",
        "a\n</write>\nb",
        "x</read>",
        "```\nx",
        "```py\nx\n``` y",
        "```py\nx\n```\ny\n```",
        "x \ud83d",
        "a &amp; b < c",
    ],
)
def test_a_document_is_all_up_to_its_last_closers(document: str) -> None:
    assert content_of(OPEN + document + CLOSE) == document


@pytest.mark.parametrize(
    ("path", "content"),
    [
        *(
            (f"a{end}", 'test="@price &lt; 10"')
            for end in (".xsl", ".csproj", ".php", ".svelte", ".resx", ".j2", ".XML")
        ),
        ("a.py", 'test="@price < 10"'),
        ("a.c", 'test="@price < 10"'),
    ],
)
def test_an_entity_is_meant_where_files_have_some(path: str, content: str) -> None:
    call = f'<write>\n<filePath>{path}</filePath>\n<content>\ntest="@price &lt; 10"\n</content>\n</write>'
    assert json.loads(read_every_way(call).calls[0][1]) == {"filePath": path, "content": content}


@pytest.mark.parametrize(
    ("closers", "taken"),
    [
        ("\n</content>\n</content>\n</write>", 2),
        ("\n</content>\n</write>\n</content>\n</write>", 0),
        ("\n</parameter>\n</write>", 5),
        ("\n</parameter>\n</content>\n</write>", 5),
        ("\n</write>\n</content>", 5),
        ("\n</write>\n</write>", 5),
        ("\n</tool_call></content>\n</write>", 5),
    ],
)
def test_a_closer_too_many_or_of_another_kind_ends_a_document(closers: str, taken: int) -> None:
    found = read_every_way(OPEN + "a" + closers)
    assert json.loads(found.calls[0][1])["content"] == "a"
    assert found.scores == [97 - taken]


@pytest.mark.parametrize(
    ("call", "content"),
    [
        ("<write><filePath>a</filePath><content>x</content>\n<why>It is <b>\n</b> a > b</why>\n</write>", "x"),
        ("<write><content>x</content>\n<why>y</why>\n<mood>z</mood><filePath>a</filePath></write>", "x"),
        ("<write><filePath>a</filePath><content>x</content><why>y</why></content></write>", "x</content><why>y</why>"),
    ],
)
def test_behind_a_document_in_tags_elements_that_the_tool_does_not_have_are_arguments(call: str, content: str) -> None:
    assert content_of(call) == content


@pytest.mark.parametrize(
    ("opener", "closers"),
    [
        ("<tool_call>\n<function=write>{}</function>\n</tool_call>", ("<parameter={}>\n", "\n</parameter>\n")),
        ('<invoke name="write">{}</invoke>', ('<parameter name="{}">', "</parameter>\n")),
    ],
)
def test_a_parameter_that_the_tool_does_not_have_ends_a_document_that_holds_no_opener(
    opener: str, closers: tuple[str, str]
) -> None:
    def written(**values: str) -> str:
        return opener.format("".join(closers[0].format(key) + text + closers[1] for key, text in values.items()))

    assert content_of(written(filePath="a", content="x\ny", why="It is <b>")) == "x\ny"
    assert content_of(written(content="x", why="z", filePath="a")) == "x"
    # Those that the document opens are its own.
    held = f"<{closers[0][1:].format('why').strip()}y{closers[1]}{closers[0].format('mood')}z{closers[1]}x"
    assert content_of(written(filePath="a", content=held)) == held


@pytest.mark.parametrize("closers", ["</content>", "</invoke>", "{}{}", "{}</content>", "</content>{}", "</invoke>{}"])
@pytest.mark.parametrize(
    ("opener", "parameter", "closer"),
    [
        ("<tool_call>\n<function=write>{}</function>\n</tool_call>", "<parameter={}>{}", "</parameter>"),
        ('<invoke name="write">{}</invoke>', '<parameter name="{}">{}', "</parameter>"),
        ("<write>{}</write>", "<{0}>{1}", "</{}>"),
    ],
)
def test_closers_too_many_before_a_parameter_that_the_tool_does_not_have_are_no_part_of_a_document(
    opener: str, parameter: str, closer: str, closers: str
) -> None:
    written = opener.format(
        parameter.format("filePath", "a")
        + closer.format("filePath")
        + parameter.format("content", "# x\n\ny")
        + closers.format(*[closer.format("content")] * 2)
        + parameter.format("i", "Write it")
        + closer.format("i")
    )
    found = read_every_way(written)
    assert [json.loads(arguments)["content"] for _, arguments in found.calls] in ([], ["# x\n\ny"])
    # One closer in a document may be what it is about, where elements are parameters.
    assert found.calls or "<write>" in opener


_QWEN = "<function=bash>\n<parameter=command>\nls\n</parameter>\n{}Show\n</parameter>\n</function>"
_INVOKE = '<invoke name="bash"><parameter name="command">ls</parameter>\n{}Show</parameter></invoke>'
_GLM = "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n{}Show</arg_value></tool_call>"


@pytest.mark.parametrize(
    ("call", "opener"),
    [
        (_QWEN, "<paramter=description>\n"),
        (_QWEN, "<parameter=description\n"),
        (_INVOKE, '<parmeter name="description">'),
        (_INVOKE, '<parameter nam=e"description">'),
        (_INVOKE, '<parameter name="description"'),
        (_GLM, "<ag_key>description</arg_key>\n<arg_value>"),
    ],
)
def test_a_parameter_whose_opener_is_damaged_does_not_go_into_the_value_before_it(call: str, opener: str) -> None:
    assert read_every_way(call.format(opener)).calls == []


@pytest.mark.parametrize(
    "text", ["a\n</parameter>\n<b>the filePath</b>\nc", "a </parameter> to <filePath> b", "</parameter>\nb"]
)
def test_a_closer_that_no_opener_follows_is_part_of_a_document(text: str) -> None:
    inside = f"<parameter=content>\n{text}\n</parameter>\n<parameter=filePath>\nf\n</parameter>"
    assert content_of(f"<function=write>\n{inside}\n</function>") == text


@pytest.mark.parametrize(
    "call",
    [
        OPEN + "<content>\na" + CLOSE,
        "<write><filePath><filePath>a</filePath><content>x</content></write>",
        '<invoke name="bash"><parameter name="command">\n<command>\nls</parameter></invoke>',
        '<invoke name="read"><parameter name="filePath"><filePath>a</filePath></parameter></invoke>',
    ],
)
def test_a_value_that_opens_its_own_element_without_need_is_in_doubt(call: str) -> None:
    assert read_every_way(call).calls == []


def test_a_page_may_begin_with_an_element_of_the_parameter_s_name() -> None:
    page = "<content>\n<b>x</b>\n</content>"
    inside = f"<parameter=filePath>a</parameter><parameter=content>\n{page}\n</parameter>"
    assert content_of(f"<function=write>{inside}</function>") == page


@pytest.mark.parametrize("behind", ["", "</function>", " later"])
def test_a_parameter_behind_the_end_of_a_call_is_none_of_it(behind: str) -> None:
    call = "<function=read><parameter=filePath>a</parameter></function>"
    found = read_every_way(f"{call}<parameter=i>c</parameter>{behind}")
    assert found.calls == [("read", '{"filePath":"a"}')]
    assert found.text == f"<parameter=i>c</parameter>{behind}"


@pytest.mark.parametrize(
    "behind",
    ["\nb\n</write>\n", "\nb\n</content> c", "\nb </write> c", " and </content> x", "\n</content>\n</write>\n</write>"],
)
def test_closers_that_close_nothing_behind_a_call_do_not_draw_it_out(behind: str) -> None:
    found = read_every_way(OPEN + "a" + CLOSE + behind)
    assert json.loads(found.calls[0][1])["content"] == "a"


def test_another_call_behind_a_document_is_a_call_of_its_own() -> None:
    text = OPEN + "a" + CLOSE + "\n" + OPEN + "b" + CLOSE
    assert [json.loads(arguments)["content"] for _, arguments in read_every_way(text).calls] == ["a", "b"]


@pytest.mark.parametrize(
    "end",
    [
        "</content></filePath>\n</write>",
        "\n</content>\n<b>\n</write>",
        " <content> b\n</content>\n</content>\n</write>",
        "\n</content>\n</write>\nb\n</content>\n</write>",
        "\n</content>\n</write>\nb </write> c\n</content>\n</write>",
        "</content\n</write>",
    ],
)
def test_a_document_whose_end_is_in_doubt_is_none(end: str) -> None:
    text = f"{OPEN}a{end}"
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)


def test_a_code_fence_around_all_of_a_file_is_taken_off_at_a_price() -> None:
    text = OPEN.replace(">a<", ">a.py<") + "```python\nx = 1\n```" + CLOSE
    found = read_every_way(text)
    assert json.loads(found.calls[0][1])["content"] == "x = 1"
    assert found.scores[0] < read(OPEN + "x = 1" + CLOSE).scores[0]


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_wrong_closer_at_the_answers_end_closes_nothing(end: str) -> None:
    text = f"<read>\n<filePath>/a</limit>{end}"
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)
    assert read_every_way(f"{text}</read>").calls == [("read", '{"filePath":"/a"}')]


def test_of_two_documents_of_one_name_the_first_is_kept_and_doubted() -> None:
    text = (
        "<function=write>\n<parameter=filePath>a</parameter>\n<parameter=content>\none\n</parameter>\n"
        "<parameter=content>\ntwo\n</parameter>\n</function>"
    )
    assert read_every_way(text).calls == []
    (call,) = read(text, min_confidence=80).calls
    assert json.loads(call[1])["content"] == "one"


DAMAGED = ["</content></content>", "</content>\n</content>", "</parameter>"]


@pytest.mark.parametrize("closers", DAMAGED)
@pytest.mark.parametrize("before", ["", "\n"])
def test_a_document_of_nothing_but_closers_one_of_them_damaged_is_in_doubt(closers: str, before: str) -> None:
    text = f"<write>\n<filePath>/a</filePath>\n<content>{before}{closers}\n</write>"
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)
    assert read(text.replace("<content>", "<content>x = 1")).calls != [], "behind a text it ends that"


# --- Behind the end of a document: what shows that it was one, and what asks for another reading


END = "\n</content>\n</write>"

READ = "<read>\n<filePath>b</filePath>\n</read>"


def contents(text: str) -> list[str]:
    return [json.loads(arguments).get("content", "") for _, arguments in read_every_way(text).calls]


@pytest.mark.parametrize("behind", ["", "\n", "\nDone.", "\nDone <b>well</b>.", f"\n{READ}", f"\n{READ}\nDone."])
def test_the_first_end_is_taken_where_nothing_behind_it_says_otherwise(behind: str) -> None:
    assert contents(OPEN + "x" + END + behind)[0] == "x"


@pytest.mark.parametrize("between", ["\nmore\n", " and ", "\n# <i>more</i>\n"])
def test_no_call_is_made_where_words_stand_between_two_ends(between: str) -> None:
    assert contents(OPEN + "x" + END + between + END) == []


def test_the_end_of_another_call_behind_it_is_that_calls() -> None:
    other = OPEN.replace(">a<", ">c<")
    assert contents(f"{OPEN}x{END}\n{other}y{END}") == ["x", "y"]


def test_a_call_that_lacks_what_it_needs_goes_on_at_the_parameter_behind_another_closer() -> None:
    text = "<write>\n<content>\nx\n</content>\n</write>\ny\n</content>\n<filePath>a</filePath>\n</write>"
    assert contents(text) == ["x\n</content>\n</write>\ny"]
