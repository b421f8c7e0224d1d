"""Granite 3.x, Granite 20B-FC and Phi-4-mini's template: JSON behind one token.

    call = "<|tool_call|>" ws ( list | object ) [ "<|/tool_call|>" | "</|tool_call|>" ]
         | "<function_call>" ws object { "<function_call>" ws object }                  (20B-FC)

There need be no closer: the value ends by its braces. Granite 3.1's plain `<tool_call>[` and Granite 4 are hermes.
"""

from strategies.grammar.dialect import Dialect
from strategies.grammar.json_payload import marked_json
from strategies.writing.token_renderer import JsonRenderer

__all__ = ["GRANITE", "GRANITE_FC"]

_CLOSERS = ("<|/tool_call|>", "</|tool_call|>", "</tool_call>", "<|tool_call_end|>")

# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/granite_tool_parser.py
GRANITE = Dialect(
    id="granite",
    family="granite",
    level="A",
    openers=lambda _context: ("<|tool_call|>",),
    parse=marked_json(optional=_CLOSERS),
    results=("<|tool_response|>", "<|start_of_role|>tool_response"),
    models=("granite-3*", "granite3*"),
    renderer=JsonRenderer(
        id="granite", opening="<|tool_call|>[", closing="]", between=", ", tokens=("<|tool_call|>", "<|start_of_role|>")
    ),
    example='<|tool_call|>[{"name": "read", "arguments": {"filePath": "src/app.py"}}]',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/granite_20b_fc_tool_parser.py
GRANITE_FC = Dialect(
    id="granite_fc",
    family="granite",
    level="B",
    openers=lambda _context: ("<function_call>",),
    parse=marked_json(form="hermes", optional=("</function_call>",)),
    models=("granite-20b*",),
    example='<function_call> {"name": "read", "arguments": {"filePath": "src/app.py"}}',
)
