"""Every dialect as the damage tests write it: who writes its calls, and what in them is markup."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from gateway.core.tools import Tool
from strategies.asking.renderers import RENDERERS

__all__ = ["DATA_FORMS", "TAG_FORMS", "Form"]

_CLOSER = re.compile(r"(?:\]<\]minimax\[>\[)?</[^<>\n]+>|<\|close\|>\w+<\|sep\|>|<｜tool_calls?_end｜>")
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
    Form(id="minimax_m2", renderer="minimax_m2"),
    Form(id="minimax_m3", renderer="minimax_m3"),
    Form(id="dsml", renderer="dsml"),
    Form(id="step3", renderer="step3"),
    Form(id="muse_glimmer", renderer="claude_invoke", rewrite=_as_muse),
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


def _arrows(name: str, arguments: str) -> str:
    lines = "".join(
        f"  --{key} {json.dumps(value, ensure_ascii=False)}\n" for key, value in json.loads(arguments).items()
    )
    return f'[TOOL_CALL]\n{{tool => "{name}", args => {{\n{lines}}}}}\n[/TOOL_CALL]'


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
    *("lfm2", "longcat", "functionary", "gptme"),
)
DATA_FORMS = (
    *(_json_form(dialect) for dialect in _RENDERED),
    Form(id="functiongemma", renderer="functiongemma", marks=_MARK),
    Form(id="gemma4", renderer="gemma4", marks=_MARK),
    _json_form("hermes_unopened", lambda name, arguments: f"{_object(name, arguments)}\n</tool_call>"),
    _json_form("glm_bare", lambda name, arguments: f"{name}\n{arguments}"),
    _json_form("ds_stripped", lambda name, arguments: f"function{name}\n```json\n{arguments}\n```"),
    _json_form("mistral_stripped", lambda name, arguments: f"{name}[ARGS]{arguments}"),
    _json_form("granite_fc", lambda name, arguments: f"<function_call> {_object(name, arguments)}"),
    _json_form("json_bare", _object),
    _json_form("harmony_stripped", lambda name, arguments: f"assistantcommentary to=functions.{name} json{arguments}"),
    _json_form("tool_request", lambda name, arguments: f"[TOOL_REQUEST]{_object(name, arguments)}[END_TOOL_REQUEST]"),
    _json_form("functionary_v2", lambda name, arguments: f"<|recipient|>{name}<|content|>{arguments}<|stop|>"),
    _json_form("arrows", _arrows),
    Form(id="continue", renderer="hermes", rewrite=_json_form("continue", _continue).rewrite, marks=_MARK),
    _python_form("pythonic_tagged", "<|python_start|>[", "]<|python_end|>"),
    _python_form("olmo3", "<function_calls>\n", "\n</function_calls>"),
    _python_form("smollm3", "<code>\n", "\n</code>"),
    Form(
        id="gemma_stripped",
        renderer="gemma4",
        rewrite=lambda text: text.removeprefix("<|tool_call>").removesuffix("<tool_call|>"),
        marks=_MARK,
    ),
)
