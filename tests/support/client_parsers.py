"""How clients of tags read an answer, restated from their rules, one character at a time and without any shortcut.

Roo Code and Kilo: the first closing tag ends a value; `content` loses one line break on each side, every other value
the white space around it; in `write_to_file` a later `</content>` makes the content everything from the first opening
to there. Roo undoes entities once in three places unless the model is a Claude. Cline trims every value.
"""

import re
from collections.abc import Iterable

from attrs import define, field

from strategies.schema.known_tools import known_tools

SPACE = "".join(
    char for char in map(chr, range(0x10000)) if re.match(r"\s", char) and char not in "\x1c\x1d\x1e\x1f\x85"
)
SPACE += "\ufeff"
PARAMETERS = sorted(
    {name for tools in known_tools().values() for tool in tools for name in tool.parameters["properties"]}
)
DECODED = {("write_to_file", "content"), ("execute_command", "command"), ("apply_diff", "diff")}


@define
class Use:
    """One use of a tool, as the client would carry it out."""

    name: str
    params: dict[str, str] = field(factory=dict)
    partial: bool = True


def unescaped_once(text: str) -> str:
    names = {"lt": "<", "gt": ">", "quot": '"', "apos": "'", "#39": "'", "amp": "&"}
    return re.sub(r"&(lt|gt|quot|apos|#39|amp);", lambda match: names[match[1]], text)


def parse(text: str, client: str, *, tools: Iterable[str], model: str = "m") -> list[Use]:
    """Every tool use in an answer."""
    uses: list[Use] = []
    use: Use | None = None
    use_start = value_start = 0
    param: str | None = None
    tools = list(tools)
    for at in range(1, len(text) + 1):
        seen = text[:at] if at < 40 else text[at - 40 : at]
        if use is not None and param is not None:
            closer = f"</{param}>"
            if seen.endswith(closer) and at - len(closer) >= value_start:
                use.params[param] = cut(client, param, text[value_start : at - len(closer)])
                param = None
        elif use is not None:
            if seen.endswith(f"</{use.name}>"):
                use.partial = False
                uses.append(use)
                use = None
                continue
            if seen.endswith(">") and (opener := re.search(r"<(\w+)>\Z", seen)) and opener[1] in PARAMETERS:
                param, value_start = opener[1], at
            elif client != "cline" and use.name == "write_to_file" and seen.endswith("</content>"):
                inner = text[use_start:at]
                start, end = inner.find("<content>") + len("<content>"), inner.rfind("</content>")
                if end > start:
                    use.params["content"] = cut(client, "content", inner[start:end])
        elif seen.endswith(">") and (opener := re.search(r"<([\w-]+)>\Z", seen)) and opener[1] in tools:
            use, use_start = Use(opener[1]), at
    if client == "roo" and "claude" not in model:
        for done in uses:
            for key, value in done.params.items():
                if (done.name, key) in DECODED:
                    done.params[key] = unescaped_once(value)
    return uses


def cut(client: str, param: str, value: str) -> str:
    if client != "cline" and param == "content":
        return re.sub(r"\n\Z", "", re.sub(r"\A\n", "", value))
    return value.strip(SPACE)
