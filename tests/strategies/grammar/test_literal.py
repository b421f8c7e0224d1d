"""Where markup is only being talked about."""

import pytest

from gateway.core.events import Note
from strategies.grammar.dialect import Opening
from strategies.grammar.literal import (
    closes_fence,
    indents_code,
    is_announced_example,
    is_quoted,
    may_open_fence,
    opens_fence,
    says_example,
)
from tests.support.reading import read, read_every_way

CALL = "<read>\n<filePath>a</filePath>\n</read>"
JSON_CALL = '{"name": "read", "arguments": {"filePath": "a"}}'


@pytest.mark.parametrize("line", ["", "   ", "\t", "- ", "  1. ", "* - ", "10) ", "     "])
def test_a_fence_may_open_behind_indentation_and_list_markers(line: str) -> None:
    assert may_open_fence(line)


@pytest.mark.parametrize("line", ["x", "x ", "> ", "-", "1.", "a. "])
def test_a_fence_opens_behind_nothing_else(line: str) -> None:
    assert not may_open_fence(line)


def test_the_info_string_of_a_fence_is_its_first_word() -> None:
    assert opens_fence(" XML  title", "`") == "xml"
    assert opens_fence("", "`") == ""
    assert opens_fence("a`b", "`") is None
    assert opens_fence("a`b", "~") == "a`b"


@pytest.mark.parametrize("line", ["```", "````", "   ``` \t", "```\r"])
def test_a_fence_is_closed_by_as_many_marks(line: str) -> None:
    assert closes_fence(line, ("`", 3, 0))


@pytest.mark.parametrize("line", ["``", "~~~", "``` x", "    ```", "x ```", ""])
def test_a_fence_is_closed_by_nothing_less(line: str) -> None:
    assert not closes_fence(line, ("`", 3, 0))


def test_a_deeper_fence_is_closed_as_deep() -> None:
    assert closes_fence("     ```", ("`", 3, 2))
    assert not closes_fence("      ```", ("`", 3, 2))


@pytest.mark.parametrize(
    "before",
    [
        "For example:\n",
        "e.g.:\n",
        "Example:\n",
        "An example:\n",
        "Here is an example:\n",
        "Here's a quick example call:\n",
        "**Example:**\n",
        "### Example\n",
        "Example usage:\n",
        "An example of how the tool is called:\n",
        "A call would look like this:\n",
        "It looks like this:\n",
        "You would write, for instance:\n",
        "Zum Beispiel:\n",
        "z.B.:\n",
        "Hier ein Beispiel:\n",
        "Ein Beispielaufruf:\n",
        "Das sieht so aus:\n",
        "Das würde so aussehen:\n",
        "Par exemple :\n",
        "Voici un exemple :\n",
        "Un exemple d'appel :\n",
        "Por ejemplo:\n",
        "Un ejemplo:\n",
        "Por exemplo:\n",
        "Um exemplo de chamada:\n",
        "Ad esempio:\n",
        "Ecco un esempio:\n",
        "Например:\n",
        "Вот пример:\n",
        "Пример вызова:\n",
        "Na przykład:\n",
        "例如：\n",
        "示例：\n",
        "下面是一个示例：\n",
        "例えば：\n",
        "たとえば：\n",
        "Till exempel:\n",
        "For example, a call could look like this:\n",
        "Do not run this:\n",
        "Whatever happens, never run:\n",
        "Don't do this on a production machine:\n",
        "I won't run this:\n",
        "I refuse to execute the following:\n",
        "**You must not call it like that:**\n",
        "The model printed the following instead of calling the tool:\n",
        "Your server returned this text rather than a call:\n",
        "The answer before contained this as plain text:\n",
    ],
)
def test_words_that_say_outright_that_it_is_an_example(before: str) -> None:
    assert says_example(before)
    assert says_example(f"{before}\n<function_calls>\n")
    assert is_announced_example(before)


def test_what_stands_in_a_dialogue_behind_other_text_is_not_done():
    for others in (
        "\n\nUser: go on\n\nAssistant: ",
        "\nHuman: yes\nAssistant:\n\n",
        "\n**User:** yes\n\n**Assistant:** Now:\n",
    ):
        assert says_example(f"It is done.{others}")
    # Its own label, a template's echo at the very start, and words about a user.
    for before in ("Done.\n\nAssistant: ", "User: go on\n\nAssistant: ", "Done.\nUser: the one who asks.\n\nNow:\n"):
        assert not says_example(before)
    calls = [f"<function=bash>\n<parameter=command>\n{text}\n</parameter>\n</function>" for text in ("ls", "rm a")]
    assert read("\n\nHuman: yes\n\nAssistant: ".join(calls)).calls == [("bash", '{"command":"ls"}')]


@pytest.mark.parametrize(
    "before",
    [
        "I'll read the example:\n",
        "Let me look at an example:\n",
        "Let me see what it looks like:\n",
        "Reading the example file:\n",
        "I will look at the examples:\n",
        "The example is in docs:\n",
        "Next I want to see what the config looks like:\n",
        "Ich lese das Beispiel:\n",
        "Let's open the sample:\n",
        "Checking the schema:\n",
        "First, the format:\n",
        "Now the example from the docs:\n",
        "Je lis l'exemple :\n",
        "Сейчас прочитаю пример:\n",
        "我来看一下示例：\n",
        "让我读取这个例子：\n",
        "Example files first:\n",
        "The examples directory:\n",
        "Looking at example.py:\n",
        "Reading examples/demo.py.\n",
        "サンプルを読みます：\n",
        "An example came before. Now I read:\n",
        "For example.\n\nNow:\n",
        "I will not do that.\n",
        "I can't do that, so I look for another way:\n",
        "You said not to run the tests. I read the file first:\n",
        "I cannot find it; searching:\n",
        "If it fails, don't worry:\n",
        "I can't use the cache here. Calling the server:\n",
        "Checking what the server returned:\n",
        "I printed this as text instead of calling it:\n",
        "The tool returned this error, so a second try:\n",
        "The user said to do this:\n",
        "The test printed this. Reading the file:\n",
        "",
    ],
)
def test_words_of_which_an_example_is_a_part(before: str) -> None:
    assert not says_example(before)


def test_an_announced_call_is_not_shown_while_it_is_written() -> None:
    found = read(list(f"For example:\n{CALL}"), reasoned=True, stream_arguments="incremental")
    assert (found.calls, found.broken, found.streamed) == ([], [], "")
    assert found.scores == []


def test_an_example_without_a_whole_call_is_no_attempt() -> None:
    events = [read(f"{lead}<read>\n<filePath>a").events for lead in ("For example:\n", "Now:\n")]
    assert [[event.seen for event in found if isinstance(event, Note)][-1] for found in events] == [
        "",
        "<read>\n<filePath>a",
    ]


def quoted(before: str, level: str = "C") -> bool:
    return is_quoted(Opening(marker="<read", before=before), level)


@pytest.mark.parametrize(
    "before", ["", "\n", "   ", "Done.\n", "Look: ", "Now! ", "(see above) ", "</write> ", "`x`\n"]
)
def test_a_call_may_stand_at_a_line_start_or_behind_a_sentence(before: str) -> None:
    assert not quoted(before)


@pytest.mark.parametrize("before", ["use ", "the", '"', "“", "> ", "x > y\n> ", "- ", "1. ", "* ", "`", "a, "])
def test_a_call_inside_a_sentence_a_list_or_a_quotation_is_talked_about(before: str) -> None:
    assert quoted(before)


def test_strong_markup_counts_inside_a_sentence_but_not_in_quotes() -> None:
    assert not quoted("use ", "B")
    assert quoted('say "', "B")
    assert quoted("> ", "B")


@pytest.mark.parametrize(
    "before",
    ['say "', '"', ':"', "say '", "say `", "sagt „", "原文是“", "dit « ", "> ", "x\n>> ", '"<|section|> <|call|>'],
)
def test_nothing_counts_in_a_quotation_that_has_just_begun(before: str) -> None:
    assert quoted(before, "A")
    assert quoted(before, "B")


@pytest.mark.parametrize(
    "before",
    ['say "x"', '"x\ny"', "it is the users'", "„x“", "“x”", "»x«", "« x » ", "> x\n\n", '"x"<|section|>'],
)
def test_special_tokens_count_behind_a_quotation(before: str) -> None:
    assert not quoted(before, "A")


@pytest.mark.parametrize(
    "before", ["For example:\n", "It looks like this:\n", "e.g. ", "Zum Beispiel:\n", "例如：\n", "The format is\n"]
)
def test_a_lead_in_announces_an_example(before: str) -> None:
    assert is_announced_example(before)


@pytest.mark.parametrize(
    "before",
    [
        "So würde ein Aufruf aussehen.\nEr sieht so aus:\n",
        "Ein Aufruf würde so aussehen:\n",
        "Na przykład:\n",
        "Například:\n",
        "Наприклад:\n",
        "Bijvoorbeeld:\n",
        "Till exempel:\n",
        "Örneğin:\n",
        "Contohnya:\n",
        "Ví dụ:\n",
        "उदाहरण के लिए:\n",
        "على سبيل المثال:\n",
        "例：\n",
        "ツール呼び出しの例です。\n",
        "호출은 다음과 같습니다:\n",
        "You can call it with:\n",
        "A call looks like this in XML:\n",
        "It looks like the following block:\n",
        "Every tool call is one JSON object:\n",
        "Each message holds one:\n",
        "You'd write:\n",
    ],
)
def test_a_lead_in_announces_an_example_in_other_words(before: str) -> None:
    assert is_announced_example(before)


@pytest.mark.parametrize(
    "before",
    [
        "The log shows:\n",
        "I changed the docs. They now say:\n",
        "Then the model **wrote:**\n",
        "The server returned the following:\n",
        "Das Protokoll zeigt:\n",
        "Le journal contient :\n",
        "El registro muestra:\n",
        "Модель ответила:\n",
        "日志显示：\n",
        "モデルは次のように答えました：\n",
    ],
)
def test_a_lead_in_announces_what_somebody_else_wrote(before: str) -> None:
    assert is_announced_example(before)


@pytest.mark.parametrize(
    "before",
    [
        "Let me see what the log shows:\n",
        "I'll check what it says:\n",
        "No matches were returned.\n",
        "It looks like this file is missing. I search it:\n",
        "It looks like this file is missing, so I search it:\n",
        "Any request to the server fails, so I look at it:\n",
        "Ich schaue, was das Protokoll zeigt:\n",
        "让我看看日志显示：\n",
        "调整比例：\n",
    ],
)
def test_what_the_model_does_next_announces_nothing(before: str) -> None:
    assert not is_announced_example(before)


@pytest.mark.parametrize(
    "before", ["", "I will read it.\n", "An example came before. Now I read:\n", "For example, no.\n\nNow:\n"]
)
def test_only_the_last_sentence_announces(before: str) -> None:
    assert not is_announced_example(before)


@pytest.mark.parametrize(
    "text",
    [
        f"~~~~\n~~~\n{CALL}\n~~~\n~~~~\nSee.",
        f"````\n```\n{CALL}\n```\nstill\n````\n",
        f"```\n~~~\n{CALL}\n~~~\n",
        f"```text\n{CALL}\n",
        f"   ```py\n   {CALL}\n   ```\nSo.",
        f"1. First\n\n   ```\n   x\n   ```\n2. Then ``{CALL}``",
        f"a ``code with ` and\n{CALL}`` end",
        f">{CALL}",
        f"> quoted\n> {CALL}",
        f"<!-- {CALL} -->\n",
        f"<!--\n<function_calls>\n{CALL}\n-->",
        f"<pre>\n{CALL}\n</pre>\nis shown.",
        f'See <code class="x">{CALL}</code>',
        f"<example>\n{CALL}\n</example>",
        f"| form | {CALL} |\n",
        f"old => {CALL}",
        f"Then **{CALL}** follows.",
        '<pre>\n<tool_call>\n{"name": "read", "arguments": {"filePath": "a"}}\n</tool_call>\n</pre>',
        '| x | <tool_call>{"name": "read", "arguments": {"filePath": "a"}}</tool_call> |',
        '<!-- [TOOL_CALLS]read[ARGS]{"filePath": "a"} -->',
        '『]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="read">]<]minimax[>[<filePath>a]<]minimax[>[</filePath>'
        "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>』",
    ],
)
def test_nothing_literal_is_a_call(text: str) -> None:
    found = read_every_way(text)
    assert found.calls == []
    assert found.text == text


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{CALL}\n```",
        f"```py\nx\n```\n{CALL}",
        f"~~~\nx ```\n~~~\n{CALL}",
        f"a `b` c.\n{CALL}",
        f"a ` b.\n\n{CALL}",
        f"a ```b``` c.\n{CALL}",
        f"````\nx\n```\n````\n{CALL}",
        f"- item\n\n{CALL}",
        f"> quoted\n\n{CALL}",
        f"<!-- x -->\n{CALL}",
        f"<pre>x</pre>\n{CALL}",
        f"**I read it:** {CALL}",
        f"| a |\n| - |\n{CALL}",
        f"<think>x</think> {CALL}",
    ],
)
def test_what_is_behind_it_is_one(text: str) -> None:
    assert [name for name, _ in read_every_way(text).calls] == ["read"]


def test_inline_code_ends_near_or_is_none() -> None:
    near, far = (f"a ` b.\n{CALL}\n" + "x" * size + "`" for size in (3_000, 6_000))
    assert read_every_way(near, splits=20).calls == []
    assert [name for name, _ in read_every_way(far, splits=20).calls] == ["read"]


@pytest.mark.parametrize(
    "line",
    [
        "<main>",
        "  <h1>Orders</h1>",
        "</div>",
        "words <b>and more</b>",
        "<Board columns={columns}>",
        "<>",
        "return (",
        "function open() {",
        "items.map((item) =>",
        "})",
        "let x = 1;",
        "if x:",
        "async def read():",
        '"id": 17,',
        '{"a": 1},',
        '"novel",',
        "[",
        "    x = 1",
        "\treturn x",
        "  web:",
        "  - steps:",
    ],
)
def test_the_line_behind_code_is_indented_as_code(line: str) -> None:
    assert indents_code(line + "\n")
    assert indents_code("Words.\n\n" + line + "\n\n  ")


def test_a_call_that_is_indented_below_a_key_is_one() -> None:
    text = f"Steps:\n  call:\n    {CALL}"
    assert [name for name, _ in read_every_way(text, splits=20).calls] == ["read"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "I will read it:",
        "Let me look at it first, then",
        "1. Read the file:",
        "- first",
        "if you want to see it:",
        "  the file:",
        "volumes:",
        "    which is why I look at the file first:",
        "<tools>",
        "<response>",
        "<path>a</path>",
        "<read_file>",
        "It is done (see above)",
        "Use it for each of them.",
        "The list is [1, 2]",
        "「读取文件」",
    ],
)
def test_the_line_behind_words_or_the_markup_of_calls_is_not(line: str) -> None:
    assert not indents_code(line + "\n")


def test_white_space_that_indents_code_stays_in_front_of_a_call() -> None:
    heard = read_every_way(f"<main>\n  <h1>Orders</h1>\n  <tool_call>{JSON_CALL}</tool_call>")
    assert heard.calls == [("read", '{"filePath":"a"}')]
    assert heard.content == "<main>\n  <h1>Orders</h1>\n  "
    heard = read_every_way(f"I will read it:\n  {CALL}")
    assert heard.calls == [("read", '{"filePath":"a"}')]
    assert heard.content == "I will read it:"


def test_a_tag_inside_a_page_is_a_tag_of_that_page() -> None:
    assert not read_every_way("<ul>\n  <list>\n  <path>a</path>\n  </list>\n</ul>").calls
    assert not read_every_way(f"<div><p>Text</p>{CALL.replace(chr(10), '')}</div>").calls
    assert read_every_way(f"<p>I read it now.</p>\n{CALL}").calls
    assert read_every_way(f"<request>\n  {CALL}\n</request>").calls


@pytest.mark.parametrize(
    "before",
    [
        "Add this line to your script:\n",
        "You need to add the following line to main.py:\n",
        "Save this as `call.json`:\n",
        "Put this into `fixtures/call.json`:\n",
        "main.py:\n",
        "**src/app.ts:**\n",
        "Filename: `run.sh`:\n",
        "Fixed version:\n",
        "Here is a Python script:\n",
        "Here's the test data:\n",
    ],
)
def test_what_is_handed_over_is_none_of_its_writers(before: str) -> None:
    assert is_announced_example(before)
    assert not says_example(before)
    # As a report without a colon it says nothing of what comes next.
    assert not is_announced_example(before.replace(":", "."))


@pytest.mark.parametrize(
    "before",
    [
        "I add this line to the script:\n",
        "Let me save this as call.json:\n",
        "Reading main.py:\n",
        "Next, main.py:\n",
        "Save the result to the file:\n",
        "Searching for the script:\n",
        "The new version is there. Now the tests:\n",
    ],
)
def test_what_the_writer_does_is_not_handed_over(before: str) -> None:
    assert not is_announced_example(before)
