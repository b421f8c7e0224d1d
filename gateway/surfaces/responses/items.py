"""The items of a Responses input as turns of chat.

What hosted tools left behind, and items that nobody here knows, are left out and counted: clients gain new ones each
month. Names of calls are those that the model is shown.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from gateway.core.errors import InvalidRequest
from gateway.surfaces.checks import MAX_PARTS
from gateway.surfaces.responses.calls import CALLS, history_call
from gateway.surfaces.responses.telling import REASONING
from gateway.surfaces.seals import Seals
from gateway.surfaces.toolnames import ToolNames
from gateway.surfaces.turns import Part, Turns, text_part

__all__ = ["COMPACTION", "COMPACTIONS", "History"]

COMPACTION = "compaction"
"""What the seal of a summary is made for."""
# Under each name that it has had.
COMPACTIONS = frozenset({"compaction", "compaction_summary", "context_compaction"})
_SUMMARY = "This is a summary of the conversation so far:\n\n{}"
_TOOL_NEWS = frozenset({"additional_tools", "compaction_trigger"})
"""Items that are read elsewhere."""
_HOSTED = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "computer_call",
        "computer_call_output",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "program",
        "program_output",
    }
)
_OUTPUTS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "tool_search_output",
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
    }
)


class History(Struct, kw_only=True, eq=False):
    """The items of one request, as they come."""

    turns: Turns
    names: ToolNames
    seals: Seals
    dropped: list[str] = field(default_factory=list)

    def add(self, item: object, where: str) -> None:
        """One more item."""
        if not isinstance(item, dict):
            raise InvalidRequest("each item of the input must be an object", param=where)
        kind = item.get("type")
        # SDKs leave the type out in the short form of a message.
        if kind is None or kind == "message":
            self._message(item, where)
        elif not isinstance(kind, str):
            raise InvalidRequest("the type of an item must be a string", param=f"{where}.type")
        elif kind in CALLS:
            name, arguments = history_call(self.names, item)
            self.turns.call(_call_id(item), name, arguments)
        elif kind in _OUTPUTS:
            self._output(item)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind in COMPACTIONS:
            self._summary(item)
        elif kind == "agent_message":
            self._agent_message(item)
        elif kind not in _TOOL_NEWS:
            self.dropped.append("hosted_item" if kind in _HOSTED else "item")

    def _message(self, item: Mapping[str, Any], where: str) -> None:
        role = item.get("role")
        parts = self._parts(item.get("content"), where)
        if role == "assistant":
            self.turns.text("".join(_texts(parts)))
        elif role in ("system", "developer"):
            # `developer` too: models that are asked in chat mostly know no such role.
            self.turns.system("\n\n".join(_texts(parts)))
        elif role == "user":
            self.turns.user(parts)
        else:
            raise InvalidRequest("the message has no role that is known", param=f"{where}.role")

    def _parts(self, content: object, where: str) -> list[Part]:
        """The parts of a content in chat's words."""
        if isinstance(content, str):
            return [text_part(content)] if content else []
        if content is None:
            return []
        if not isinstance(content, list):
            raise InvalidRequest("content must be a text or a list of parts", param=f"{where}.content")
        # Before any of them is looked at: they cost more here than in the bytes of the request.
        if len(content) > MAX_PARTS:
            raise InvalidRequest(f"content holds more than {MAX_PARTS} parts", param=f"{where}.content")
        return [told for part in content if (told := self._part(part)) is not None]

    def _part(self, part: object) -> Part | None:
        if isinstance(part, str):
            return text_part(part)
        told = _chat_part(part) if isinstance(part, dict) else None
        if told is None:
            self.dropped.append("part")
        # Some model servers refuse an empty text, and clients send one beside pictures.
        return told if told != text_part("") else None

    def _output(self, item: Mapping[str, Any]) -> None:
        kind, output = item["type"], item.get("output")
        if kind == "tool_search_output":
            self.turns.result(_call_id(item), self._found(item.get("tools")))
        elif kind == "shell_call_output":
            self.turns.result(_call_id(item), _shell_output(output))
        elif kind == "apply_patch_call_output":
            status = item.get("status")
            text = output if isinstance(output, str) else ""
            self.turns.result(_call_id(item), text or (status if isinstance(status, str) else ""))
        else:
            # A result of several parts is one text to chat; its pictures go behind it, as no result may hold one.
            parts = self._parts(output if isinstance(output, str | list) else None, "input")
            pictures = [part for part in parts if part["type"] != "text"]
            text = "\n".join(_texts(parts)) if len(parts) > 1 else "".join(_texts(parts))
            self.turns.result(_call_id(item), text or ("(see below)" if pictures else ""), pictures)

    def _found(self, tools: object) -> str:
        """What a search for tools has found, by the names that the model is shown."""
        found: list[str] = []
        for tool in tools if isinstance(tools, list) else ():
            if not isinstance(tool, dict) or not isinstance(name := tool.get("name"), str):
                continue
            inner = tool.get("tools") if tool.get("type") == "namespace" else None
            if isinstance(inner, list):
                found += [
                    self.names.flat(each["name"], name)
                    for each in inner
                    if isinstance(each, dict) and isinstance(each.get("name"), str)
                ]
            else:
                # By the names that the model is shown, or it would call a tool that the client does not know.
                found.append(self.names.flat(name))
        return f"Loaded: {', '.join(found)}" if found else "No tools were found."

    def _reasoning(self, item: Mapping[str, Any]) -> None:
        blob = item.get("encrypted_content")
        sealed = self.seals.open(blob, purpose=REASONING) if blob else None
        # Sealed with another secret, or by another server: nobody here can read it, and it is no fault of the client.
        if blob and sealed is None:
            self.dropped.append("seal")
        text = sealed.get("text") if sealed is not None else None
        # Servers that seal nothing leave the thought in plain words.
        if not isinstance(text, str):
            content = item.get("content")
            text = "".join(
                part["text"]
                for part in (content if isinstance(content, list) else ())
                if isinstance(part, dict) and isinstance(part.get("text"), str)
            )
        self.turns.reasoning(text)

    def _summary(self, item: Mapping[str, Any]) -> None:
        sealed = self.seals.open(item.get("encrypted_content"), purpose=COMPACTION)
        text = sealed.get("summary") if sealed is not None else None
        if isinstance(text, str) and text:
            self.turns.user([text_part(_SUMMARY.format(text))])
        else:
            self.dropped.append("seal")

    def _agent_message(self, item: Mapping[str, Any]) -> None:
        """What one agent tells another: to chat it is something that is said to the model."""
        author, recipient = item.get("author"), item.get("recipient")
        head = f"[Message from {author if isinstance(author, str) else 'an agent'}"
        head += f" to {recipient}]" if isinstance(recipient, str) else "]"
        self.turns.user([text_part(head), *self._parts(item.get("content"), "input")])


def _chat_part(part: Mapping[str, Any]) -> Part | None:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text", "reasoning_text", "summary_text", "refusal"):
        text = part.get("refusal" if kind == "refusal" else "text")
        return text_part(text) if isinstance(text, str) else None
    if kind in ("input_image", "image_url"):
        return _image(part)
    if kind in ("input_file", "file"):
        return _file(part)
    if kind == "input_audio" and isinstance(part.get("input_audio"), dict):
        return {"type": "input_audio", "input_audio": part["input_audio"]}
    return None


def _image(part: Mapping[str, Any]) -> Part | None:
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, dict) else given
    if not isinstance(url, str) or not url:
        # An `http` address is left to the model server: nothing is fetched from here.
        return None  # a file that the vendor's server holds
    image = {"url": url}
    if part.get("detail") in ("low", "high", "auto"):
        image["detail"] = part["detail"]
    return {"type": "image_url", "image_url": image}


def _file(part: Mapping[str, Any]) -> Part | None:
    inner = part.get("file")
    given = inner if isinstance(inner, dict) else part
    data = given.get("file_data") or given.get("file_url")
    if not isinstance(data, str) or not data:
        return None
    file = {"file_data": data}
    if isinstance(given.get("filename"), str):
        file["filename"] = given["filename"]
    return {"type": "file", "file": file}


def _call_id(item: Mapping[str, Any]) -> str:
    """The id of a call; the output of a local shell has it in the place of its own."""
    found = item.get("call_id") or item.get("id")
    return found if isinstance(found, str) else ""


def _texts(parts: list[Part]) -> list[str]:
    return [part["text"] for part in parts if part["type"] == "text"]


def _shell_output(output: object) -> str:
    if isinstance(output, str):
        return output
    told: list[str] = []
    for each in output if isinstance(output, list) else ():
        if not isinstance(each, dict):
            continue
        told += [text for name in ("stdout", "stderr") if isinstance(text := each.get(name), str) and text]
        outcome = each.get("outcome")
        if isinstance(outcome, dict) and outcome.get("type") == "timeout":
            told.append("[timed out]")
        # A command that fails without a word would look like one that has done its work.
        elif isinstance(outcome, dict) and outcome.get("exit_code") not in (None, 0):
            told.append(f"[exit code {outcome['exit_code']}]")
    return "\n".join(told)
