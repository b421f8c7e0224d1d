"""Phi-4 and FireFunction: a JSON list behind `functools`.

    calls = "functools" ws list

The list ends by its brackets, and no closer follows. The `<|tool_call|>` of Phi-4-mini's template is read as Granite's.
"""

from strategies.grammar.dialect import Dialect
from strategies.grammar.json_payload import marked_json
from strategies.grammar.literal import inside_word
from strategies.writing.token_renderer import JsonRenderer, json_text

__all__ = ["PHI"]

# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/phi4mini_tool_parser.py
# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/llama-cpp-microsoft-Phi-4-mini-instruct.jinja
PHI = Dialect(
    id="phi4",
    family="phi",
    level="A",
    openers=lambda _context: ("functools[", "functools ["),
    may_open=lambda _context, opening: not inside_word(opening),
    parse=marked_json(keep=1),
    models=("phi-4*", "phi4*", "firefunction*"),
    carriers=("", "json", "tool_call", "tool_code", "tool", "tools", "function"),
    renderer=JsonRenderer(
        id="phi4",
        opening="functools[",
        closing="]",
        between=", ",
        answer=lambda name, call_id, content: f'{{"result": {json_text(content)}}}',
        tokens=("functools[",),
    ),
    example='functools[{"name": "read", "arguments": {"filePath": "src/app.py"}}]',
)
