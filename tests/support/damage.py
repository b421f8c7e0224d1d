"""Calls with damaged markup: random calls in every dialect, and what a reading of them came to.

A call is written by its dialect's own renderer, once with a placeholder for each text, so that its markup is known, and
once as it is. In dialects of tags each closer is then doubled, dropped, exchanged, spelled as another or set beside
another one; in all others each quotation mark, bracket, separator and token, and the escapes inside texts are left out.
The name may stand behind namespaces.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from attrs import frozen

from gateway.answer.stages import Hold, Shaper
from gateway.core.events import End, Note
from gateway.core.tools import Tool, ToolSet
from gateway.wire.chat_request import request_of
from strategies.asking.ask_again import asking_again
from strategies.asking.renderers import RENDERERS
from strategies.base import Options, Shape
from strategies.dialects.rows import BY_ID
from strategies.reading.factory import reader_factory
from strategies.text.turns import whole
from strategies.writing.renderer import CannotExpress
from tests.support.reading import BOOLEAN, INTEGER, STRING, Reading, pieces, read, tool

__all__ = [
    "DATA_FORMS",
    "TAG_FORMS",
    "Damaged",
    "Form",
    "Outcome",
    "damaged_calls",
    "outcome_of",
    "read_in_pieces",
    "read_whole",
    "told_in_vain",
]


_CLOSER = re.compile(
    r"(?:\]<\]minimax\[>\[)?</[^<>\n]+>|<\|tool_(?:arg|call):end\|>|<\|close\|>\w+<\|sep\|>|<｜tool_calls?_end｜>"
)

_MARK = re.compile(r"</?[^<>\n]{1,60}>|```\w*|\[/?[A-Z_]{3,}\]|END_ARG|[\"{}\[\](),:=]")


def _raw(value: str) -> str:
    return value


def _in_json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


@frozen(kw_only=True)
class Form:
    """One dialect and how its calls are written."""

    id: str
    renderer: str
    """Whose text it is made of."""
    rewrite: Callable[[str], str] = str
    """What makes the renderer's text this dialect's."""
    marks: re.Pattern[str] = _CLOSER
    """What is damaged."""
    escaped: Callable[[str], str] = _raw
    """A text as it stands between its marks."""

    @property
    def is_tags(self) -> bool:
        return self.marks is _CLOSER

    def call(self, made: Tool, arguments: Mapping[str, Any]) -> str:
        """Raises `CannotExpress` where the dialect cannot carry it."""
        return self.rewrite(RENDERERS[self.renderer].call(made.name, arguments, made))


def _without(*parts: str) -> Callable[[str], str]:
    def write(text: str) -> str:
        for part in parts:
            text = text.replace(part, "")
        return text

    return write


def _as_xai(text: str) -> str:
    bare = _without("<function_calls>\n", "\n</function_calls>")(text)
    opened = bare.replace("<invoke ", "<xai:function_call ", 1)
    return opened.removesuffix("</invoke>") + "</xai:function_call>"


def _as_longcat(text: str) -> str:
    return re.sub(r"<(/?)(tool_call|arg_key|arg_value)>", r"<\1longcat_\2>", text)


def _as_user(text: str) -> str:
    return re.sub(r"<(/?)tool_call>", r"<\1user>", text)


def _as_muse(text: str) -> str:
    name = re.search(r'name="([^"]+)"', text)
    inner = re.sub(r"<(/?)(function_calls|invoke|parameter)\b", r"<\1atem:\2", text)
    return f"<|start|>assistant to={name[1] if name else ''}<|message|>{inner}"


TAG_FORMS = (
    Form(id="qwen3_coder", renderer="qwen3_coder"),
    Form(id="bare_function", renderer="qwen3_coder", rewrite=_without("<tool_call>\n", "\n</tool_call>")),
    Form(id="seed_oss", renderer="seed_oss"),
    Form(id="glm", renderer="glm"),
    Form(id="hy3", renderer="hy3"),
    Form(id="claude_invoke", renderer="claude_invoke"),
    Form(id="bare_invoke", renderer="claude_invoke", rewrite=_without("<function_calls>\n", "\n</function_calls>")),
    Form(
        id="dots",
        renderer="claude_invoke",
        rewrite=lambda text: text.replace("function_calls>", "dots_function_call>"),
    ),
    Form(id="xai", renderer="claude_invoke", rewrite=_as_xai),
    Form(id="minimax_m2", renderer="minimax_m2"),
    Form(id="minimax_m3", renderer="minimax_m3"),
    Form(id="dsml", renderer="dsml"),
    Form(id="step3", renderer="step3"),
    Form(id="gcml", renderer="gcml"),
    Form(id="k2_horizon", renderer="k2_horizon"),
    Form(id="longcat", renderer="glm", rewrite=_as_longcat),
    Form(id="laguna_user", renderer="glm", rewrite=_as_user),
    Form(id="iquest", renderer="iquest"),
    Form(id="solar_open2", renderer="solar_open2"),
    Form(id="muse_glimmer", renderer="claude_invoke", rewrite=_as_muse),
    Form(id="nova", renderer="nova"),
    Form(id="spark", renderer="spark"),
    Form(id="kimi_k3", renderer="kimi_k3"),
    Form(id="generic_xml", renderer="generic_xml"),
    Form(id="wrapped_xml", renderer="generic_xml", rewrite=lambda text: f"<tool_use>\n{text}\n</tool_use>"),
)


def _json_form(dialect: str, write: Callable[[str, str], str] | None = None) -> Form:
    """A dialect whose values are JSON strings; `write` makes its call of a name and the JSON of the arguments."""
    if write is None:
        return Form(id=dialect, renderer=dialect, marks=_MARK, escaped=_in_json)

    def rewritten(text: str) -> str:
        found = re.search(r'\{"name": "([^"]+)", "arguments": (.*)\}\n</tool_call>\Z', text, re.DOTALL)
        assert found is not None
        return write(found[1], found[2])

    return Form(id=dialect, renderer="hermes", rewrite=rewritten, marks=_MARK, escaped=_in_json)


def _object(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "arguments": {arguments}}}'


def _python_form(dialect: str, opening: str, closing: str) -> Form:
    """A Python call in another frame than a list."""
    return Form(
        id=dialect,
        renderer="pythonic",
        rewrite=lambda text: f"{opening}{text[1:-1]}{closing}",
        marks=_MARK,
        escaped=_in_json,
    )


def _server_call(name: str, arguments: str) -> str:
    named = f"<server_name>files</server_name>\n<tool_name>{name}</tool_name>"
    return f"<use_mcp_tool>\n{named}\n<arguments>\n{arguments}\n</arguments>\n</use_mcp_tool>"


def _arrows(name: str, arguments: str) -> str:
    lines = "".join(
        f"  --{key} {json.dumps(value, ensure_ascii=False)}\n" for key, value in json.loads(arguments).items()
    )
    return f'[TOOL_CALL]\n{{tool => "{name}", args => {{\n{lines}}}}}\n[/TOOL_CALL]'


def _grok(name: str, arguments: str) -> str:
    lines = "".join(
        f"<|tool_sep|>{key}\n{value if isinstance(value, str) else json.dumps(value)}\n"
        for key, value in json.loads(arguments).items()
    )
    return f"<|tool_calls_begin|><|tool_call_begin|>\n{name}\n{lines}<|tool_call_end|><|tool_calls_end|>"


def _continue(name: str, arguments: str) -> str:
    blocks = "".join(
        f"BEGIN_ARG: {key}\n{value if isinstance(value, str) else json.dumps(value)}\nEND_ARG\n"
        for key, value in json.loads(arguments).items()
    )
    return f"```tool\nTOOL_NAME: {name}\n{blocks}```"


_RENDERED = (
    *("nemotron_nano", "hermes", "llama3_tag", "hunyuan", "minimax_m1", "ds_v3", "ds_v31", "kimi_k2", "mistral"),
    *("mistral_old", "granite", "phi4", "internlm", "command_r", "command_r_action", "react", "qwen_agent"),
    *("json_fence", "xlam", "pythonic", "tool_code", "harmony", "llama3_json", "apertus", "gigachat", "inkling"),
    *("lfm2", "longcat", "functionary", "gptme", "plamo3", "solar_open", "pangu", "hyperclovax", "doubao"),
)

DATA_FORMS = (
    *(_json_form(dialect) for dialect in _RENDERED),
    Form(id="functiongemma", renderer="functiongemma", marks=_MARK),
    Form(id="gemma4", renderer="gemma4", marks=_MARK),
    _json_form("hermes_unopened", lambda name, arguments: f"{_object(name, arguments)}\n</tool_call>"),
    _json_form("glm_bare", lambda name, arguments: f"{name}\n{arguments}"),
    _json_form("ds_stripped", lambda name, arguments: f"function{name}\n```json\n{arguments}\n```"),
    _json_form("kimi_k2_stripped", lambda name, arguments: f"functions.{name}:0{arguments}"),
    _json_form("mistral_stripped", lambda name, arguments: f"{name}[ARGS]{arguments}"),
    _json_form("granite_fc", lambda name, arguments: f"<function_call> {_object(name, arguments)}"),
    _json_form("json_bare", _object),
    _json_form("harmony_stripped", lambda name, arguments: f"assistantcommentary to=functions.{name} json{arguments}"),
    _json_form("tool_request", lambda name, arguments: f"[TOOL_REQUEST]{_object(name, arguments)}[END_TOOL_REQUEST]"),
    _json_form("calling_tool", lambda name, arguments: f"[Calling tool: {name}({arguments})]"),
    _json_form("functionary_v2", lambda name, arguments: f"<|recipient|>{name}<|content|>{arguments}<|stop|>"),
    _json_form("arrows", _arrows),
    _json_form(
        "tabby", lambda name, arguments: f'<|tool_start|>[{{"function": {_object(name, arguments)}}}]<|tool_end|>'
    ),
    _json_form("server_call", _server_call),
    Form(id="grok", renderer="hermes", rewrite=_json_form("grok", _grok).rewrite, marks=_MARK),
    _json_form("cwm", lambda name, arguments: f"<tool: {name}>\n{arguments}\n</tool>"),
    Form(id="continue", renderer="hermes", rewrite=_json_form("continue", _continue).rewrite, marks=_MARK),
    _python_form("pythonic_tagged", "<|python_start|>[", "]<|python_end|>"),
    _python_form("olmo3", "<function_calls>\n", "\n</function_calls>"),
    _python_form("smollm3", "<code>\n", "\n</code>"),
    _python_form("gorilla", "<<function>>", ""),
    _python_form("nexus_raven", "Call: ", "<bot_end>"),
    Form(
        id="gemma_stripped",
        renderer="gemma4",
        rewrite=lambda text: text.removeprefix("<|tool_call>").removesuffix("<tool_call|>"),
        marks=_MARK,
    ),
)


# --- Damage


Span = tuple[int, int, str]

"""Where markup or a text stands, and the parameter it belongs to."""

Outcome = Literal["right", "text", "asked", "wrong"]

"""`asked`: no call, but the reading says that one was meant."""

_M3 = "]<]minimax[>["

_WORDS = (
    *("parameter", "function", "tool_call", "invoke", "arg_value", "arg_key", "tool_calls", "param", "function_calls"),
    *("｜DSML｜parameter", "｜DSML｜invoke", "｜｜DSML｜｜parameter", "｜｜DSML｜｜invoke", "steptml:parameter"),
    *("atem:parameter", "atem:invoke", "antml:" + "parameter", "antml:" + "invoke", "seed:tool_call", "tool_use"),
    *("minimax:tool_call", "ifm|arg_value", "ifm|tool_call", "iquest_tool_call", "｜GCML｜parameter", "｜GCML｜invoke"),
    *("longcat_arg_value", "longcat_tool_call", "__parameter", "__function"),
)

_SPELLINGS = (
    *(f"</{word}>" for word in _WORDS),
    *(
        "<|close|>argument<|sep|>",
        "<|close|>call<|sep|>",
        "<|tool_arg:end|>",
        f"{_M3}</content>",
        f"{_M3}</invoke>",
        "<｜tool_call_end｜>",
    ),
)

_BODIES = ("content", "command", "newString", "oldString", "diff", "code", "text", "message", "patch")

_LINES = ("path", "filePath", "pattern", "query", "title", "url", "mode", "dir")

_OTHERS = ("limit", "count", "force", "recursive", "timeout")

_VERBS, _NOUNS = ("read", "write", "edit", "find", "run", "move"), ("file", "text", "note", "task", "page", "shell")

_PLAIN = ("hello world", "a", "src/app.py", "x = 1", "if a < b and c > d:", "fn f() -> Vec<u8> {}", "7", "true", "é ü")

_MARKUP = (
    *("<div>", "</div>", "<br/>", "<b>x</b>", "</p>", "List<str>", "<!-- c -->", "&lt;", "&amp;", "```py\nx\n```"),
    *("<parameter=x>", "<parameter=path>", "<function=read_file>", "<tool_call>", "<arg_key>", "<content>", "<path>"),
    *("<content>x</content>", "<path>a.py</path>", "<name>n</name>", "<value>v</value>", "<tool>t</tool>"),
    '<invoke name="read_file">',
    '<parameter name="path">',
    *(f"</{word}>" for word in _WORDS),
)

_CALLS = (
    "<tool_call>\n<function=read_file>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>",
    "<function=read_file><parameter=path>a</parameter></function>",
    "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n</tool_call>",
    '<function_calls>\n<invoke name="read_file">\n<parameter name="path">a</parameter>\n</invoke>\n</function_calls>',
    "<read_file>\n<path>a</path>\n</read_file>",
    "<parameter>\n<b>x</b>\n</parameter>",
)

_QUOTED = (
    *(
        'say "hi"',
        "it's",
        '"',
        "'",
        "''",
        "C:\\Users\\bob\\new",
        "\\d+\\.\\w*",
        "a\\tb",
        '{"a": [1, 2], "b": "c"}',
        "}",
        "]",
    ),
    *(
        "a, b: c",
        "New York, NY",
        "f(x=1)",
        "[1]",
        "path: x",
        'limit=5, path="b"',
        "x\\",
        '"path": "b"',
        "'a', 'b'",
        "{",
        ")",
    ),
    *(
        '"quoted"',
        "`code`",
        "“so”",
        'He said: "no", then left',
        "END_ARG",
        "[/TOOL_CALL]",
        "<|tool_call|>",
        "<|call|>",
        "```",
    ),
)

_SIGNS = (*"\"'`“”{}[](),:=;", '\\"', '""', '<|"|>', "<escape>")

_TOKENS = (
    *("</tool_call>", "<tool_call>", "<|tool_call|>", "<tool_call|>", "<|call|>", "<|end|>", "<｜tool▁call▁end｜>"),
    *("<|tool_call_end|>", "[/TOOL_CALLS]", "</function>", "<|im_end|>", "```", "<|END_ACTION|>", "</TOOLCALL>"),
)

_NAMESPACES = ("functions.", "default_api:", "default_api.", "google:mcp:files:", "mcp/files/", "tools.", "api.v1.")


def _tools(seed: int) -> ToolSet:
    rng = random.Random(seed)
    names = rng.sample([f"{verb}_{noun}" for verb in _VERBS for noun in _NOUNS], 2)
    made = [tool("read_file", "path", limit=INTEGER)]
    for name in names:
        if name == "read_file":
            continue
        strings = [*rng.sample(_BODIES, rng.randint(0, 2)), *rng.sample(_LINES, rng.randint(0, 2))] or ["content"]
        rng.shuffle(strings)
        others = {key: rng.choice((INTEGER, BOOLEAN)) for key in rng.sample(_OTHERS, rng.randint(0, 2))}
        optional = {key: STRING for key in strings[1:] if rng.random() < 0.5}
        made.append(tool(name, *(key for key in strings if key not in optional), **optional, **others))
    return ToolSet(made)


def _value(rng: random.Random, *, is_tags: bool) -> str:
    kind = rng.random()
    if not is_tags and kind > 0.4:
        parts = [rng.choice((*_PLAIN, *_QUOTED, *_QUOTED)) for _ in range(rng.randint(1, 3))]
        return rng.choice((" ", "\n", "")).join(parts)
    if kind < 0.35:
        return rng.choice(_PLAIN)
    if kind < 0.6:
        return "\n".join(rng.choice(("", "    ")) + rng.choice(_PLAIN) for _ in range(rng.randint(2, 4)))
    if kind < 0.9:
        parts = [rng.choice((*_PLAIN, *_MARKUP, *_MARKUP)) for _ in range(rng.randint(1, 4))]
        return rng.choice((" ", "\n", "")).join(parts)
    return rng.choice(("", "See:\n", "x ")) + rng.choice(_CALLS) + rng.choice(("", "\nor so.", " y"))


def _arguments(rng: random.Random, made: Tool, *, is_tags: bool) -> dict[str, Any]:
    schema: Any = made.parameters
    found: dict[str, Any] = {}
    for key, prop in schema["properties"].items():
        if key not in schema["required"] and rng.random() < 0.4:
            continue
        if prop == INTEGER:
            found[key] = rng.randint(-3, 5000)
        elif prop == BOOLEAN:
            found[key] = rng.random() < 0.5
        else:
            found[key] = _value(rng, is_tags=is_tags)
    return found


@frozen(kw_only=True)
class Damaged:
    """A call with one fault in its markup."""

    form: Form
    tools: ToolSet
    name: str
    arguments: dict[str, Any]
    text: str
    undamaged: str
    damage: str
    behind: tuple[dict[str, Any], ...] = ()
    """The arguments of the same tool's calls behind it."""

    @property
    def level(self) -> str:
        """How strong the evidence is that its dialect gives."""
        return BY_ID[self.form.id].level

    @property
    def expected(self) -> list[tuple[str, dict[str, Any]]]:
        return [(self.name, arguments) for arguments in (self.arguments, *self.behind)]


@frozen(kw_only=True)
class _Written:
    """A call's text, where its markup stands, and where its texts do."""

    text: str
    marks: list[Span]
    values: list[Span]


def _rendered(form: Form, made: Tool, arguments: dict[str, Any]) -> _Written | None:
    """The call as its dialect writes it; None where the dialect cannot carry it."""
    try:
        whole = form.call(made, arguments)
    except CannotExpress:
        return None
    found = _written(form, made, arguments)
    return found if found.text == whole else None


def _written(form: Form, made: Tool, arguments: dict[str, Any], *, space: str = "") -> _Written:
    """The call, whatever its values hold, with its name in this namespace."""
    places = enumerate(arguments.items())
    holders = {key: f"zq{at}zq" if isinstance(value, str) else value for at, (key, value) in places}
    frame = form.call(made, holders).replace(made.name, space + made.name)
    text, at = "", 0
    marks: list[Span] = []
    values: list[Span] = []
    texts = {f"zq{place}zq": value for place, value in enumerate(arguments.values())}
    for match in re.finditer(rf"zq\d+zq|{form.marks.pattern}", frame):
        text += frame[at : match.start()]
        found = texts.get(match.group())
        owner = max(arguments, key=lambda key: frame.rfind(key, 0, match.start()), default="")
        part = match.group() if found is None else form.escaped(found)
        (marks if found is None else values).append((len(text), len(text) + len(part), owner))
        text += part
        at = match.end()
    return _Written(text=text + frame[at:], marks=marks, values=values)


def _closer_damages(rng: random.Random, call: _Written, keys: list[str]) -> Iterator[tuple[str, str]]:
    """Each closer damaged in every way; of the spellings a few."""
    text = call.text
    closers = [text[start:end] for start, end, _ in call.marks]
    for at, (start, end, owner) in enumerate(call.marks):
        closer = closers[at]
        for gap in ("", "\n"):
            yield f"double {closer}", text[:end] + gap + closer + text[end:]
        yield f"drop {closer}", text[:start] + text[end:]
        for other in range(at + 1, len(closers)):
            first, last, _ = call.marks[other]
            if closers[other] != closer:
                swapped = text[:start] + closers[other] + text[end:first] + closer + text[last:]
                yield f"swap {closer} {closers[other]}", swapped
        spellings = [*_SPELLINGS, *(f"</{key}>" for key in keys)]
        for spelling in (
            *rng.sample(spellings, 3),
            f"</{rng.choice(keys)}>" if keys else "</x>",
            *sorted(set(closers)),
        ):
            if spelling == closer:
                continue
            gap = rng.choice(("", "\n"))
            yield f"respell {closer} {spelling}", text[:start] + spelling + text[end:]
            if spelling.strip("</>") in keys and spelling.strip("</>") != owner:
                continue  # a value may mention the other parameters
            yield f"before {closer} {spelling}", text[:start] + spelling + gap + text[start:]
            yield f"behind {closer} {spelling}", text[:end] + gap + spelling + text[end:]


def _mark_damages(rng: random.Random, call: _Written) -> Iterator[tuple[str, str]]:
    """Each mark of a dialect of data damaged in every way; of the spellings a few. Texts without their escapes."""
    text = call.text
    for at, (start, end, _) in enumerate(call.marks):
        mark = text[start:end]
        for gap in ("", "\n"):
            yield f"double {mark}", text[:end] + gap + mark + text[end:]
        yield f"drop {mark}", text[:start] + text[end:]
        for first, last, _ in call.marks[at + 1 : at + 3]:
            other = text[first:last]
            if other != mark:
                yield f"swap {mark} {other}", text[:start] + other + text[end:first] + mark + text[last:]
        is_sign = len(mark) == 1
        for spelling in rng.sample(_SIGNS if is_sign else _TOKENS, 3):
            if spelling != mark:
                yield f"respell {mark} {spelling}", text[:start] + spelling + text[end:]
                yield f"before {mark} {spelling}", text[:start] + spelling + text[start:]
                yield f"behind {mark} {spelling}", text[:end] + spelling + text[end:]
        if not is_sign:
            yield f"begun {mark}", text[: end - 1] + text[end:]
            yield f"begun {mark}", text[:start] + text[start + 1 :]
            yield f"bars {mark}", text[:start] + mark.replace("|", "｜") + text[end:]
    for start, end, _ in call.values:
        value = text[start:end]
        places = [found.start() for found in re.finditer(r"\\.", value)]
        if places:
            yield "no escapes", text[:start] + re.sub(r"\\([\\\"])", r"\1", value) + text[end:]
            place = start + rng.choice(places)
            yield "an escape less", text[:place] + text[place + 1 :]
        if r"\n" in value:
            lines = re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[0], value)
            yield "lines as they are", text[:start] + lines + text[end:]


def _letter_damages(rng: random.Random, made: Tool, call: _Written) -> Iterator[tuple[str, str]]:
    """A letter of the markup lost, doubled or exchanged with the next, or a sign of it lost: a few of each call.

    Names and values stay as they are: misspelt, they are what the model wrote.
    """
    text = call.text
    held = {at for start, end, _ in call.values for at in range(start, end)}
    for word in ("true", "false", made.name, *made.parameters["properties"]):
        held.update(at for found in re.finditer(re.escape(word), text) for at in range(*found.span()))
    places = [at for at, sign in enumerate(text) if at not in held and (sign.isalpha() or sign in "<>/|｜_")]
    for at in rng.sample(places, min(_LETTERS, len(places))):
        shown = f"{text[at]} at {at}"
        yield f"lost {shown}", text[:at] + text[at + 1 :]
        if text[at].isalpha():
            yield f"doubled {shown}", text[: at + 1] + text[at:]
            if at + 1 in places and text[at + 1] != text[at]:
                yield f"exchanged {shown}", text[:at] + text[at + 1] + text[at] + text[at + 2 :]


_LETTERS = 6


def _damages(
    rng: random.Random, form: Form, made: Tool, arguments: dict[str, Any], call: _Written
) -> Iterator[tuple[str, str]]:
    yield from _closer_damages(rng, call, list(arguments)) if form.is_tags else _mark_damages(rng, call)
    yield from _letter_damages(rng, made, call)
    for space in rng.sample(_NAMESPACES, 3):
        yield f"namespace {space}", _written(form, made, arguments, space=space).text


def damaged_calls(seed: int, count: int, *, per_call: int = 6) -> Iterator[Damaged]:
    """So many damaged calls: dialects of tags and all others in turn, a few damages of each call."""
    rng = random.Random(seed)
    sets = [_tools(seed * 100 + at) for at in range(6)]
    tags, others = list(TAG_FORMS), list(DATA_FORMS)
    made = 0
    while made < count:
        if not tags or not others:
            tags, others = tags or list(TAG_FORMS), others or list(DATA_FORMS)
        forms = (tags.pop(rng.randrange(len(tags))), others.pop(rng.randrange(len(others))))
        for form in forms:
            cases = [*_damaged(rng, form, rng.choice(sets), per_call)]
            if not cases:  # it has no words for such arguments: its turn comes again
                (tags if form.is_tags else others).append(form)
            yield from cases[: count - made]
            made += len(cases)
            if made >= count:
                return


def _damaged(rng: random.Random, form: Form, tools: ToolSet, per_call: int) -> Iterator[Damaged]:
    """A few damages of one call of this form."""
    declared = rng.choice(list(tools))
    arguments = _arguments(rng, declared, is_tags=form.is_tags)
    found = _rendered(form, declared, arguments)
    if found is None:
        return
    tail = rng.choice(("", "", "\n", "\nDone.")) if form.is_tags else ""
    other = _arguments(rng, declared, is_tags=form.is_tags)
    second = _rendered(form, declared, other) if rng.random() < 0.2 else None
    behind = (other,) if second and other != arguments else ()
    tail = f"\n{second.text}" if second and behind else tail
    head = "" if form.id == "muse_glimmer" else "Now.\n"
    everyone = list(_damages(rng, form, declared, arguments, found))
    for damage, broken in rng.sample(everyone, min(per_call, len(everyone))):
        yield Damaged(
            form=form,
            tools=tools,
            name=declared.name,
            arguments=arguments,
            text=f"{head}{broken}{tail}",
            undamaged=f"{head}{found.text}{tail}",
            damage=damage,
            behind=behind,
        )


def outcome_of(case: Damaged, found: Reading) -> Outcome:
    """What the reading came to: calls that are not those that were meant, in their order, are wrong."""
    calls = [(name, json.loads(arguments)) for name, arguments in found.calls]
    if any(name not in case.tools for name, _ in calls):
        return "asked"  # behind special tokens a name that nobody declared is asked about
    if _as_json(calls) != _as_json(case.expected[: len(calls)]):
        return "right" if _is_written(case, calls) else "wrong"
    if calls:
        return "right"
    return "asked" if found.broken or any(isinstance(event, Note) and event.seen for event in found.events) else "text"


def _is_written(case: Damaged, calls: list[tuple[str, dict[str, Any]]]) -> bool:
    """Whether what was delivered is written just so: then the text has no fault that anybody could see."""
    (name, arguments), *others = calls
    made = case.tools.get(name)
    is_same = _as_json(others) == _as_json(case.expected[1 : len(calls)])
    if made is None or not is_same:
        return False
    found = _rendered(case.form, made, arguments)
    if found is None and all(_is_whole(value) for value in arguments.values()):
        found = _written(case.form, made, arguments)
    return found is not None and "".join(found.text.split()) in "".join(case.text.split())


def _is_whole(value: object) -> bool:
    """Whether every closer in a value has its opener before it."""
    opened: dict[str, int] = {}
    for match in re.finditer(r"<(/?)([^\s<>/=]+)", value if isinstance(value, str) else ""):
        opened[match[2]] = opened.get(match[2], 0) + (-1 if match[1] else 1)
        if opened[match[2]] < 0:
            return False
    return True


def _as_json(value: Any) -> str:
    return json.dumps(value)


def told_in_vain(text: str, tools: ToolSet) -> list[tuple[str, dict[str, Any]]]:
    """The calls that the client gets where the model is asked again, and its second answer holds none."""
    request = request_of({"model": "m", "messages": [{"role": "user", "content": "Do it."}]})
    readers = reader_factory(tools=tools, options=Options(), model="m")
    ask = asking_again(request, tools=tools)
    assert ask is not None
    reader, shaper, hold = readers(), Shaper(Shape()), Hold(ask)
    out = [*hold.feed(shaper.feed(reader.feed(text))), *hold.feed(shaper.feed(reader.finish("stop")))]
    out += [*hold.feed(shaper.finish("stop")), *hold.finish("stop")]
    if hold.broken_call is None:
        return []
    told = whole(hold.as_written(readers, Shape()))
    assert "".join(event.raw for event in [*out, *told]) == text
    calls = [(event.name, json.loads(event.arguments)) for event in told if isinstance(event, End)]
    return [] if any(name not in tools for name, _ in calls) else calls


def read_whole(case: Damaged, *, prompted: bool, **options: Any) -> Reading:
    return read(case.text, tools=case.tools, prompted=case.form.renderer if prompted else None, **options)


def read_in_pieces(case: Damaged, rng: random.Random, *, prompted: bool, **options: Any) -> Reading:
    cuts = sorted(rng.sample(range(len(case.text) + 1), min(len(case.text), rng.randint(1, 12))))
    prompt = case.form.renderer if prompted else None
    return read(list(pieces(case.text, cuts)), tools=case.tools, prompted=prompt, **options)
