"""Calls whose closers are damaged: random calls in every dialect of tags, and what a reading of them came to.

A call is written by its dialect's own renderer, once with a placeholder for each text, so that its closers are known,
and once as it is. Each closer is then doubled, dropped, exchanged, spelled as another or set beside another one.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

from attrs import frozen

from gateway.core.events import Note
from gateway.core.tools import Tool, ToolSet
from strategies.asking.renderers import RENDERERS
from strategies.writing.renderer import CannotExpress
from tests.support.reading import BOOLEAN, INTEGER, STRING, Reading, pieces, read, tool

__all__ = ["FORMS", "Damaged", "Outcome", "damaged_calls", "outcome_of"]

Span = tuple[int, int, str]
"""Where a closer stands, and the parameter it belongs to."""
Outcome = Literal["right", "text", "asked", "wrong"]
"""`asked`: no call, but the reading says that one was meant."""


@frozen(kw_only=True)
class Form:
    """One dialect and how its calls are written."""

    id: str
    renderer: str
    rewrite: Callable[[str], str] = str
    """What makes the renderer's text this dialect's."""


def _without(*parts: str) -> Callable[[str], str]:
    def write(text: str) -> str:
        for part in parts:
            text = text.replace(part, "")
        return text

    return write


def _as_muse(text: str) -> str:
    name = re.search(r'name="([^"]+)"', text)
    inner = re.sub(r"<(/?)(function_calls|invoke|parameter)\b", r"<\1atem:\2", text)
    return f"<|start|>assistant to={name[1] if name else ''}<|message|>{inner}"


FORMS = (
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
    Form(id="minimax_m2", renderer="minimax_m2"),
    Form(id="minimax_m3", renderer="minimax_m3"),
    Form(id="dsml", renderer="dsml"),
    Form(id="step3", renderer="step3"),
    Form(id="muse_glimmer", renderer="claude_invoke", rewrite=_as_muse),
    Form(id="kimi_k3", renderer="kimi_k3"),
    Form(id="generic_xml", renderer="generic_xml"),
    Form(id="wrapped_xml", renderer="generic_xml", rewrite=lambda text: f"<tool_use>\n{text}\n</tool_use>"),
)
_M3 = "]<]minimax[>["
_CLOSER = re.compile(r"(?:\]<\]minimax\[>\[)?</[^<>\n]+>|<\|close\|>\w+<\|sep\|>|<｜tool_calls?_end｜>")
_WORDS = (
    *("parameter", "function", "tool_call", "invoke", "arg_value", "arg_key", "tool_calls", "param", "function_calls"),
    *("｜DSML｜parameter", "｜DSML｜invoke", "｜｜DSML｜｜parameter", "｜｜DSML｜｜invoke", "steptml:parameter"),
    *("atem:parameter", "atem:invoke", "antml:" + "parameter", "antml:" + "invoke", "seed:tool_call", "tool_use"),
    "minimax:tool_call",
)
_SPELLINGS = (
    *(f"</{word}>" for word in _WORDS),
    *("<|close|>argument<|sep|>", "<|close|>call<|sep|>", f"{_M3}</content>", f"{_M3}</invoke>", "<｜tool_call_end｜>"),
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


def _value(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(_PLAIN)
    if kind < 0.6:
        return "\n".join(rng.choice(("", "    ")) + rng.choice(_PLAIN) for _ in range(rng.randint(2, 4)))
    if kind < 0.9:
        parts = [rng.choice((*_PLAIN, *_MARKUP, *_MARKUP)) for _ in range(rng.randint(1, 4))]
        return rng.choice((" ", "\n", "")).join(parts)
    return rng.choice(("", "See:\n", "x ")) + rng.choice(_CALLS) + rng.choice(("", "\nor so.", " y"))


def _arguments(rng: random.Random, made: Tool) -> dict[str, Any]:
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
            found[key] = _value(rng)
    return found


@frozen(kw_only=True)
class Damaged:
    """A call with one damaged closer."""

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
    def expected(self) -> list[tuple[str, dict[str, Any]]]:
        return [(self.name, arguments) for arguments in (self.arguments, *self.behind)]


def _rendered(form: Form, made: Tool, arguments: dict[str, Any]) -> tuple[str, list[Span]] | None:
    """The call's text and where its closers stand; None where the dialect cannot carry it."""
    try:
        whole = form.rewrite(RENDERERS[form.renderer].call(made.name, arguments, made))
    except CannotExpress:
        return None
    found = _written(form, made, arguments)
    return found if found[0] == whole else None


def _written(form: Form, made: Tool, arguments: dict[str, Any]) -> tuple[str, list[Span]]:
    """The call's text, whatever its values hold, and where its closers stand."""
    places = enumerate(arguments.items())
    holders = {key: f"zq{at}zq" if isinstance(value, str) else value for at, (key, value) in places}
    frame = form.rewrite(RENDERERS[form.renderer].call(made.name, holders, made))
    text, at = "", 0
    spans: list[Span] = []
    texts = {f"zq{place}zq": value for place, value in enumerate(arguments.values())}
    for match in re.finditer(rf"zq\d+zq|{_CLOSER.pattern}", frame):
        text += frame[at : match.start()]
        found = texts.get(match.group())
        if found is None:
            owner = max(arguments, key=lambda key: frame.rfind(key, 0, match.start()), default="")
            spans.append((len(text), len(text) + len(match.group()), owner))
        text += match.group() if found is None else found
        at = match.end()
    return text + frame[at:], spans


def _damages(rng: random.Random, text: str, spans: list[Span], keys: list[str]) -> Iterator[tuple[str, str]]:
    """Each closer damaged in every way; of the spellings a few."""
    closers = [text[start:end] for start, end, _ in spans]
    for at, (start, end, owner) in enumerate(spans):
        closer = closers[at]
        for gap in ("", "\n"):
            yield f"double {closer}", text[:end] + gap + closer + text[end:]
        yield f"drop {closer}", text[:start] + text[end:]
        for other in range(at + 1, len(spans)):
            first, last, _ = spans[other]
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


def damaged_calls(seed: int, count: int, *, per_call: int = 6) -> Iterator[Damaged]:
    """So many damaged calls: all dialects in turn, a few damages of each call."""
    rng = random.Random(seed)
    sets = [_tools(seed * 100 + at) for at in range(6)]
    made = 0
    while made < count:
        for form in FORMS:
            tools = rng.choice(sets)
            declared = rng.choice(list(tools))
            arguments = _arguments(rng, declared)
            found = _rendered(form, declared, arguments)
            if found is None:
                continue
            text, spans = found
            tail = rng.choice(("", "", "\n", "\nDone."))
            other = _arguments(rng, declared)
            second = _rendered(form, declared, other) if rng.random() < 0.2 else None
            behind = (other,) if second and other != arguments else ()
            tail = f"\n{second[0]}" if second and behind else tail
            everyone = list(_damages(rng, text, spans, list(arguments)))
            for damage, broken in rng.sample(everyone, min(per_call, len(everyone))):
                yield Damaged(
                    form=form,
                    tools=tools,
                    name=declared.name,
                    arguments=arguments,
                    text=f"Now.\n{broken}{tail}" if form.id != "muse_glimmer" else broken + tail,
                    undamaged=f"Now.\n{text}{tail}" if form.id != "muse_glimmer" else text + tail,
                    damage=damage,
                    behind=behind,
                )
                made += 1
                if made == count:
                    return


def outcome_of(case: Damaged, found: Reading) -> Outcome:
    """What the reading came to: calls that are not those that were meant, in their order, are wrong."""
    calls = [(name, json.loads(arguments)) for name, arguments in found.calls]
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
    return found is not None and "".join(found[0].split()) in "".join(case.text.split())


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


def read_whole(case: Damaged, *, prompted: bool, **options: Any) -> Reading:
    return read(case.text, tools=case.tools, prompted=case.form.renderer if prompted else None, **options)


def read_in_pieces(case: Damaged, rng: random.Random, *, prompted: bool, **options: Any) -> Reading:
    cuts = sorted(rng.sample(range(len(case.text) + 1), min(len(case.text), rng.randint(1, 12))))
    prompt = case.form.renderer if prompted else None
    return read(list(pieces(case.text, cuts)), tools=case.tools, prompted=prompt, **options)
