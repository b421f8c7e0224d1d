import json

import pytest

from strategies.schema.known_tools import known, known_tools
from strategies.schema.names import resolve_parameter
from strategies.schema.tool_schema import schema_of
from tests.support.reading import together

EVERY = [tool for variants in known_tools().values() for tool in variants]


@pytest.mark.parametrize(
    "name", ["read_file", "write_to_file", "execute_command", "bash", "read", "todowrite", "editor"]
)
def test_well_known_tools_are_there(name):
    assert known(name)
    assert all(tool.name == name and tool.known for tool in known(name))


def test_other_names_are_unknown():
    assert known("get_weather") == ()
    assert known("") == ()
    assert known("invalid") == ()


@together("tool", {f"{number}, {tool.name}": tool for number, tool in enumerate(EVERY)})
def test_each_schema_is_sound(tool):
    json.dumps(tool.parameters)
    schema = schema_of(tool)
    assert schema.required <= set(schema.properties)
    assert all(resolve_parameter(name, schema, ()) == (name, ()) for name in schema.properties)


def test_variants_differ():
    for variants in known_tools().values():
        assert len({json.dumps(tool.parameters, sort_keys=True) for tool in variants}) == len(variants)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"path": "a.py"}),
        ("read_file", {"files": [{"path": "a.py", "line_ranges": [[1, 40], [90, 120]]}, {"path": "b.py"}]}),
        ("read_file", {"path": "a.py", "mode": "slice", "offset": 1, "limit": 20}),
        ("write_to_file", {"path": "a", "content": "b", "line_count": 1}),
        ("execute_command", {"command": "ls", "requires_approval": False}),
        ("execute_command", {"command": "ls", "cwd": None, "timeout": None}),
        ("ask_followup_question", {"question": "q", "follow_up": [{"text": "a", "mode": None}]}),
        ("ask_followup_question", {"question": "q", "options": ["a", "b"]}),
        ("edit", {"filePath": "a", "oldString": "b", "newString": "c", "replaceAll": True}),
        ("multiedit", {"filePath": "a", "edits": [{"oldString": "b", "newString": "c"}]}),
        ("todowrite", {"todos": [{"content": "a", "status": "pending", "priority": "high", "id": "1"}]}),
        ("apply_patch", {"patchText": "*** Begin Patch"}),
        ("apply_patch", {"input": "*** Begin Patch"}),
        ("run_commands", {"commands": ["ls", {"command": "ls", "args": ["-l"]}]}),
        ("todoread", {}),
    ],
)
def test_usual_arguments_fit_a_variant(name, arguments):
    assert any(schema_of(tool).check(arguments) is None for tool in known(name))


def test_wrong_arguments_fit_no_variant():
    assert all(schema_of(tool).check({"file": "a"}) is not None for tool in known("write_to_file"))
    assert all(schema_of(tool).check({"todos": [{"content": "a", "status": "odd"}]}) for tool in known("todowrite"))
