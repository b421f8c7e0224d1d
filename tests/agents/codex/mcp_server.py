"""A tool server with one tool, for Codex to start: it writes down what it is asked, and answers with a word."""

import json
import sys

TOOL = {
    "name": "stamp",
    "description": "Stamps a text and returns the stamp.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def answer(method: str, params: dict[str, object]) -> dict[str, object]:
    if method == "initialize":
        info = {"name": "stamps", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        arguments = params["arguments"]
        assert isinstance(arguments, dict)
        return {"content": [{"type": "text", "text": f"stamped {arguments['text']}: delta-3307"}]}
    return {}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            told = {"jsonrpc": "2.0", "id": asked["id"], "result": answer(asked["method"], asked.get("params", {}))}
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
