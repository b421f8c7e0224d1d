"""Requests that ask for tool work but offer no tools: the answer is relayed and watched.

A well-formed call of a well-known tool is noted, so that an operator sees what such clients miss; nothing is delivered,
for they did not ask for calls.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from attrs import evolve, field, frozen

from gateway.core.events import End, Event, Note, Text
from gateway.core.tools import Tool, ToolSet
from gateway.wire.chat_request import ChatRequest, texts_of
from strategies.base import AnswerReader, FinishReason, Options, Prepared, Shape
from strategies.reading.factory import reader_factory
from strategies.schema.known_tools import known, known_tools
from strategies.text.strict_json import loads_strict

__all__ = ["MIN_SCORE", "IntentRecovery", "IntentWatch", "asks_for_tools"]

# They did not ask for calls: only what can hardly be anything else counts.
MIN_SCORE = 95
_LOOKED_AT = 4000
"""How much of the user's message is looked at, from each end."""
_VERBS = (
    "read|open|show|print|view|look|write|create|make|save|edit|change|modify|update|fix|patch|refactor|rename|delete"
    "|remove|run|execute|start|launch|invoke|list|search|find|grep|scan"
    "|lies|lese|öffne|zeige|schreibe|erstelle|bearbeite|ändere|lösche|starte|führe|suche|finde"
    "|lis|lire|ouvre|écris|crée|modifie|supprime|exécute|lance|cherche|liste"
    "|lee|abre|escribe|crea|edita|modifica|borra|ejecuta|busca|lista"
    "|прочитай|открой|покажи|запиши|создай|измени|удали|запусти|выполни|найди"
)
_NOUNS = (
    "files?|folders?|director(?:y|ies)|commands?|scripts?|tests?|repo|repository|codebase|logs?|shell|terminal"
    "|datei(?:en)?|ordner|verzeichnis|befehle?|fichiers?|dossiers?|commandes?|archivos?|ficheros?|carpetas?|comandos?"
    "|файл\\w*|папк\\w*|команд\\w*|каталог\\w*"
)
_ASKED = re.compile(
    rf"\b(?:{_VERBS})\b[^\n]{{0,80}}?(?:\b(?:{_NOUNS})\b|\b[\w/-]{{1,60}}\.[a-z]{{1,5}}\b)", re.IGNORECASE
)
_ASKED_IN_CHINESE = re.compile(
    r"(?:读|写|打开|编辑|修改|创建|删除|运行|执行|列出|搜索|查找)[^\n]{0,40}?(?:文件|命令|目录|脚本)"
)


def asks_for_tools(request: ChatRequest) -> bool:
    """Whether the last user message asks to read, write or find files or to run a command."""
    users = (message.get("content") for message in reversed(request.messages) if message["role"] == "user")
    text = "\n".join(texts_of(next(users, None)))
    for part in (text[:_LOOKED_AT], text[_LOOKED_AT:][-_LOOKED_AT:]):
        if _ASKED.search(part) or _ASKED_IN_CHINESE.search(part):
            return True
    return False


class IntentRecovery:
    """The request as it came; certain calls of well-known tools in the answer are delivered, as an operator wants."""

    name = "recovery"

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """Nothing is changed; several choices are not read."""
        make_reader = None
        if request.body.get("n") in (None, 1):
            make_reader = reader_factory(
                tools=_well_known(),
                options=evolve(
                    options, stream_arguments="buffered", min_confidence=max(MIN_SCORE, options.min_confidence)
                ),
                model=request.model,
                messages=request.messages,
            )
        return Prepared(
            strategy=self.name, body=request.raw, make_reader=make_reader, shape=Shape(wait_for_finish=True)
        )


class IntentWatch:
    """The request as it came, the answer as it comes, watched for calls of well-known tools."""

    name = "passthrough"

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """Nothing is changed; several choices are not read."""
        make_inner = None
        if request.body.get("n") in (None, 1):
            make_inner = reader_factory(
                tools=_well_known(),
                options=evolve(options, stream_arguments="buffered"),
                model=request.model,
                messages=request.messages,
            )
        return Prepared(
            strategy=self.name,
            body=request.raw,
            make_reader=_watching(make_inner) if make_inner is not None else None,
            mend_native=False,
        )


def _watching(make_inner: Callable[[], AnswerReader]) -> Callable[[], AnswerReader]:
    return lambda: _Watching(make_inner())


class _Watching:
    """Lets all text through at once and notes the calls in it."""

    def __init__(self, inner: AnswerReader) -> None:
        self._inner: AnswerReader | None = inner

    @property
    def idle(self) -> bool:
        return True

    def feed(self, text: str) -> list[Event]:
        return [Text(text), *self._noted(lambda inner: inner.feed(text))] if text else []

    def finish(self, reason: FinishReason) -> list[Event]:
        return self._noted(lambda inner: inner.finish(reason))

    def _noted(self, read: Callable[[AnswerReader], list[Event]]) -> list[Event]:
        if self._inner is None:
            return []
        try:
            return [Note(event.verdict) for event in read(self._inner) if isinstance(event, End) and _is_certain(event)]
        except Exception:  # noqa: BLE001 - watching must never harm the answer
            self._inner = None
            return []


def _is_certain(call: End) -> bool:
    if call.verdict.score < MIN_SCORE:
        return False
    given = loads_strict(call.arguments)
    return any(variant.takes(given) for variant in _variants(call.name))


@frozen
class _Variant:
    """One way in which a client declares a well-known tool."""

    required: frozenset[str] = field(converter=frozenset)
    known: frozenset[str] = field(converter=frozenset)

    def takes(self, arguments: Mapping[str, Any]) -> bool:
        return self.required <= arguments.keys() <= self.known


@cache
def _variants(name: str) -> tuple[_Variant, ...]:
    schemas = (tool.parameters for tool in known(name))
    return tuple(_Variant(schema["required"], schema["properties"]) for schema in schemas)


@cache
def _well_known() -> ToolSet:
    """Every well-known tool, with the parameters of all its variants."""
    return ToolSet(_merged(name, variants) for name, variants in known_tools().items())


def _merged(name: str, variants: tuple[Tool, ...]) -> Tool:
    schemas = [tool.parameters for tool in variants]
    properties = {key: schema for each in schemas for key, schema in each["properties"].items()}
    required = set(properties).intersection(*(each["required"] for each in schemas))
    return Tool(name=name, parameters={"type": "object", "properties": properties, "required": sorted(required)})
