import gc
import json
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.tools import Tool
from strategies.schema.tool_schema import BODY_PARAMETERS, Prop, Value, from_markup, schema_of
from tests.support.cost import assert_linear, steps

NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
    "required": ["v"],
}
PROPERTIES: dict[str, Any] = {
    "path": {"type": "string"},
    "content": {"type": "string"},
    "limit": {"type": "integer"},
    "ratio": {"type": ["number", "null"]},
    "flag": {"type": "boolean"},
    "mode": {"enum": ["slow", "fast"]},
    "size": {"type": "string", "enum": ["a b", "c"]},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "loose": {"type": ["string", "object", "array"]},
    "files": {"type": "array", "items": {"type": "string"}},
    "counts": {"type": "array", "items": {"type": "integer"}},
    "entries": {"type": "array", "items": {"$ref": "#/$defs/node"}},
    "options": {
        "type": "object",
        "properties": {
            "timeout": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"type": "string"},
            "content": {"type": "string"},
        },
        "required": ["timeout"],
    },
    "free": {"type": "object"},
    "node": {"$ref": "#/$defs/node"},
    "either": {
        "oneOf": [
            {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
            {"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]},
        ]
    },
    "union": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
    "any": {},
}


def schema(properties: dict[str, Any] | None = None, **more: Any):
    parameters = {
        "type": "object",
        "properties": PROPERTIES if properties is None else properties,
        "$defs": {"node": NODE},
        **more,
    }
    return schema_of(Tool(name="tool", parameters=parameters))


def prop_of(declared: Any) -> Prop:
    found: Prop = schema({"x": declared}).prop("x")
    return found


@pytest.mark.parametrize(
    ("declared", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": "STR"}, {"string"}),
        ({"type": "int64"}, {"integer"}),
        ({"type": "double"}, {"number"}),
        ({"type": "bool"}, {"boolean"}),
        ({"type": "dict"}, {"object"}),
        ({"type": "list"}, {"array"}),
        ({"type": "set"}, {"array"}),
        ({"type": "mystery"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"type": "integer", "nullable": True}, {"integer", "null"}),
        ({"type": ["any", "null"]}, {"string"}),
        ({"enum": [1, "a", None]}, {"integer", "string", "null"}),
        ({"const": True}, {"boolean"}),
        ({"properties": {}}, {"object"}),
        ({"items": {}}, {"array"}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
        (
            {"anyOf": [{"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, {"type": "null"}]},
            {"integer", "boolean", "null"},
        ),
        ({"anyOf": [{"type": "integer"}, {}]}, {"string"}),
        ({"type": "string", "anyOf": [{"minLength": 1}, {"format": "uri"}]}, {"string"}),
        ({"allOf": [{"type": "integer"}, {"minimum": 1}]}, {"integer"}),
        ({"$ref": "#/$defs/node"}, {"object"}),
        ({"$ref": "#/properties/x"}, {"string"}),
        ({"$ref": "http://elsewhere/x"}, {"string"}),
        ({"$ref": "#/$defs/missing"}, {"string"}),
        ({}, {"string"}),
        (True, {"string"}),
        (None, {"string"}),
        ({"type": 5, "anyOf": "x", "enum": {}, "allOf": [1]}, {"string"}),
    ],
)
def test_types_are_read_from_any_schema(declared, types):
    assert prop_of(declared).types == types


def test_a_property_knows_its_kind():
    tool = schema()
    assert tool.prop("content").body
    assert tool.prop("content").only_string
    assert not tool.prop("path").body
    assert tool.prop("maybe").is_string
    assert not tool.prop("maybe").only_string
    assert tool.prop("size").enum == ("a b", "c")
    assert tool.prop("undeclared").only_string
    assert tool.body_keys == ("content",)
    assert {"content", "command", "new_string", "patchText"} <= BODY_PARAMETERS


@pytest.mark.parametrize("name", ["new_text", "oldText", "file_text", "TargetContent", "new_source", "cmd"])
def test_documents_are_known_by_the_words_of_their_names(name: str) -> None:
    assert schema({name: {"type": "string"}}).prop(name).body


@pytest.mark.parametrize("name", ["context", "country_code", "source", "text_format", "new_path", "line"])
def test_other_words_name_no_document(name: str) -> None:
    assert not schema({name: {"type": "string"}}).prop(name).body


def test_a_tool_schema_says_what_it_requires_and_allows():
    tool = schema({"a": {}}, required=["a", 5, "b"], additionalProperties=False)
    assert tool.required == {"a", "b"}
    assert not tool.takes("other")
    assert schema({"a": {}}).takes("other")


def test_parameters_of_alternatives_are_known():
    tool = schema({"a": {}}, anyOf=[{"properties": {"b": {"type": "integer"}}}, {"properties": {"c": {}}}])
    assert set(tool.properties) == {"a", "b", "c"}


def test_undeclared_parameters_take_the_schema_for_extras():
    assert schema({}, additionalProperties={"type": "integer"}).from_text("x", "5").value == 5


def test_one_tool_is_read_once():
    tool = Tool(name="t", parameters={"type": "object"})
    known = schema_of(tool)
    for _ in range(600):
        schema_of(Tool(name="t"))
    assert schema_of(tool) is known


def test_what_is_known_of_a_tool_goes_with_it():
    tool = Tool(name="t", parameters={"properties": {"a": {"type": "string"}}})
    known = ref(schema_of(tool).properties["a"])
    del tool
    gc.collect()
    assert known() is None


_WORDS = st.one_of(
    st.text(), st.sampled_from(["007", "true", "null", "1.10", '{"a":1}', "[1]", "<item>a</item>", " x ", ""])
)


@settings(max_examples=200)
@given(text=_WORDS)
@pytest.mark.parametrize("name", ["path", "content", "undeclared"])
def test_a_string_is_never_converted(name, text):
    assert schema().from_text(name, text) == Value(text)
    assert schema().from_json({name: text}).arguments == {name: text}


@settings(max_examples=200)
@given(text=_WORDS)
def test_of_a_parameter_without_a_type_only_the_word_null_is_converted_and_only_as_text(text):
    assert schema().from_text("any", text) == Value(None if text.strip().lower() == "null" else text)
    assert schema().from_json({"any": text}).arguments == {"any": text}


def test_a_document_without_a_type_is_never_converted():
    assert schema({"content": {}}).from_text("content", "null") == Value("null")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("limit", " 42\n", 42),
        ("limit", "+7", 7),
        ("limit", "007", 7),
        ("limit", "5.00", 5),
        ("ratio", "5", 5),
        ("ratio", "-1.5e3", -1500.0),
        ("ratio", "null", None),
        ("ratio", "None", None),
        ("flag", "True", True),
        ("flag", "false", False),
        ("mode", " fast\n", "fast"),
        ("size", "a b ", "a b"),
        ("maybe", "NULL", None),
        ("maybe", "nullable", "nullable"),
        ("maybe", "None", "None"),
        ("loose", '{"a":1}', {"a": 1}),
        ("loose", "{'a':1}", "{'a':1}"),
        ("loose", " text ", " text "),
        ("files", '["a", "1"]', ["a", "1"]),
        ("counts", '["1", 2]', [1, 2]),
        ("union", '["1"]', [1]),
        ("union", "<item>1</item>", [1]),
        ("node", '{"v":"1","next":{"v":"2"}}', {"v": 1, "next": {"v": 2}}),
        ("either", '{"n":"5"}', {"n": 5}),
        ("either", '{"s":"5"}', {"s": "5"}),
    ],
)
def test_text_becomes_the_type_the_schema_asks_for(name, text, value):
    found = schema().from_text(name, text)
    assert found.fault is None
    assert found.value == value
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("limit", "many", "`limit` must be a number"),
        ("limit", "5.5", "`limit` must be a number"),
        ("limit", "1" * 5000, "`limit` must be a number"),
        ("limit", "١٢", "`limit` must be a number"),
        ("ratio", "NaN", "`ratio` must be a number or null"),
        ("ratio", "1e999", "`ratio` must be a number or null"),
        ("flag", "1", "`flag` must be true or false"),
        ("flag", "yes", "`flag` must be true or false"),
        ("mode", "warp", "`mode` must be one of slow, fast"),
        ("size", "d", "`size` must be one of a b, c"),
        ("files", "a.py, b.py", "`files` must be an array"),
        ("files", "a.py\nb.py", "`files` must be an array"),
        ("files", "- a.py", "`files` must be an array"),
        ("files", "", "`files` must be an array"),
        ("counts", "many", "`counts` must be an array"),
        ("files", '{"a":1}', "`files` must be an array"),
        ("files", '["a"] and more', "`files` must be an array"),
        ("counts", '["x"]', "`counts[0]` must be a number"),
        ("options", "", "`options` must be an object"),
        ("options", '{"note":"x"}', "missing required argument `options.timeout`"),
        ("node", '{"v":1,"next":{}}', "missing required argument `node.next.v`"),
    ],
)
def test_text_that_cannot_fit_stays_text_with_the_fault_named(name, text, fault):
    assert schema().from_text(name, text) == Value(text, (), fault)


@pytest.mark.parametrize(("name", "text", "value"), [("files", " a.py ", ["a.py"]), ("counts", "3", [3])])
def test_a_single_item_may_stand_for_its_array(name, text, value):
    assert schema().from_text(name, text) == Value(value, ("item_unwrapped",))


@pytest.mark.parametrize(
    ("text", "mends"),
    [
        ("['a']", ("python_literal",)),
        ('["a",]', ("trailing_comma",)),
        ('["a"', ("missing_braces",)),
        ('"[\\"a\\"]"', ("stringified",)),
    ],
)
def test_mended_containers_name_their_mends(text, mends):
    assert schema().from_text("files", text) == Value(["a"], mends)


def test_a_repeated_parameter_is_an_array_of_its_items():
    assert schema().from_texts("counts", ["1", " 2"]) == Value([1, 2])
    assert schema().from_texts("counts", ["1", "x"]).fault == "`counts[1]` must be a number"
    assert schema().from_texts("path", ["a", "b"]).fault == "`path` is given 2 times"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("files", "<item>a</item>\n<item> b </item>", ["a", "b"]),
        ("files", "<file>a</file>", ["a"]),
        ("files", "<0>a</0><1>b</1>", ["a", "b"]),
        ("counts", "<count>1</count><count>2</count>", [1, 2]),
        (
            "entries",
            "<entry><v>1</v></entry><entry><v>2</v><next><v>3</v></next></entry>",
            [{"v": 1}, {"v": 2, "next": {"v": 3}}],
        ),
        ("options", "\n<timeout>5</timeout>\n<note>x</note>\n", {"timeout": 5, "note": "x"}),
        ("options", "<timeout>5</timeout><tags>a</tags><tags>b</tags>", {"timeout": 5, "tags": ["a", "b"]}),
        ("options", "<timeout>5</timeout><tags><tag>a</tag></tags>", {"timeout": 5, "tags": ["a"]}),
        ("options", '<timeout>5</timeout><tags>["a"]</tags>', {"timeout": 5, "tags": ["a"]}),
        ("options", "<timeout>5</timeout><note><b>bold</b></note>", {"timeout": 5, "note": "<b>bold</b>"}),
        ("options", "<note>a</note> is how</note><timeout>5</timeout>", {"timeout": 5, "note": "a</note> is how"}),
        ("options", "<content>\n  a\n\n</content><timeout>5</timeout>", {"timeout": 5, "content": "  a\n"}),
        ("free", "<a>1</a><b><c>x</c></b>", {"a": "1", "b": {"c": "x"}}),
    ],
)
def test_nested_tags_are_read_by_the_schema(name, text, value):
    assert schema().from_text(name, text) == Value(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("files", "plain"),
        ("files", "<item>a</item> tail"),
        ("files", "<item>a"),
        ("files", "<item>a</item><file>b</file>"),
        ("files", "<1>a</1>"),
        ("files", "<other>a</other>"),
        ("counts", "<item>x</item>"),
        ("options", "<timeout>5</timeout><timeout>6</timeout>"),
        ("options", "<unknown>5</unknown>"),
        ("options", "<timeout>soon</timeout>"),
        ("options", ""),
        ("path", "<item>a</item>"),
        ("maybe", "<item>a</item>"),
    ],
)
def test_other_text_is_no_markup(name, text):
    assert from_markup(schema().prop(name), text) is None


def render(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"<{key}>{render(item)}</{key}>" for key, item in value.items())
    if isinstance(value, list):
        return "".join(f"<item>{render(item)}</item>" for item in value)
    return str(value)


@settings(max_examples=100)
@given(
    value=st.recursive(
        st.fixed_dictionaries({"v": st.integers()}),
        lambda inner: st.fixed_dictionaries({"v": st.integers(), "next": inner}),
        max_leaves=8,
    )
)
def test_nested_tags_read_back_what_they_spell(value):
    assert schema().from_text("node", render(value)) == Value(value)
    assert schema().from_text("entries", render([value, value])) == Value([value, value])


def test_json_arguments_are_brought_to_their_types_where_text_cannot_be_meant():
    adapted = schema().from_json(
        {"limit": "5", "flag": "true", "files": '["a"]', "node": {"v": "1"}, "maybe": "null", "path": "5", "extra": "5"}
    )
    assert adapted.arguments == {
        "limit": 5,
        "flag": True,
        "files": ["a"],
        "node": {"v": 1},
        "maybe": "null",
        "path": "5",
        "extra": "5",
    }
    assert adapted.mends == ("typed_string", "stringified")


def test_json_arguments_never_become_text():
    arguments = {"path": False, "content": {"a": 1}, "maybe": True, "limit": "many", "files": "a"}
    assert schema().from_json(arguments).arguments == arguments
    assert schema().from_json(arguments).mends == ()


def test_an_optional_null_against_its_type_is_left_out():
    tool = schema(required=["flag"])
    adapted = tool.from_json({"limit": None, "ratio": None, "any": None, "flag": None, "extra": None})
    assert adapted.arguments == {"ratio": None, "any": None, "flag": None, "extra": None}
    assert adapted.mends == ("null_dropped",)


def test_prototype_keys_are_dropped_unless_declared():
    assert schema().from_json({"__proto__": {"x": 1}, "path": "a"}).arguments == {"path": "a"}
    assert schema({"constructor": {}}).from_json({"constructor": "x"}).arguments == {"constructor": "x"}


def test_missing_required_parameters_that_may_be_null_are_filled():
    tool = schema(required=["path", "ratio", "maybe"])
    filled = tool.fill_missing({"path": "a", "maybe": "b"})
    assert filled.arguments == {"path": "a", "maybe": "b", "ratio": None}
    assert filled.mends == ("null_filled",)
    assert tool.fill_missing(filled.arguments).mends == ()


def test_missing_required_parameters_that_have_a_default_are_filled():
    tool = schema({"path": {}, "limit": {"type": "integer", "default": 0}}, required=["path", "limit"])
    assert tool.fill_missing({"path": "a"}).arguments == {"path": "a", "limit": 0}
    assert tool.fill_missing({"limit": 5}).arguments == {"limit": 5}
    assert (tool.lacks(["path"]), tool.lacks(["limit"])) == (False, True)


@pytest.mark.parametrize(
    ("value", "arguments", "mends"),
    [
        (None, {}, ()),
        ({"path": "a"}, {"path": "a"}, ()),
        ('{"path":"a"}', {"path": "a"}, ("stringified",)),
        ("{'path':'a'}", {"path": "a"}, ("stringified", "python_literal")),
        ({"arguments": {"path": "a"}}, {"path": "a"}, ("wrapped",)),
        ({"arguments": {"other": "a"}}, {"arguments": {"other": "a"}}, ()),
        ({"free": {"path": "a"}}, {"free": {"path": "a"}}, ()),
    ],
)
def test_arguments_are_found_in_what_holds_them(value, arguments, mends):
    found = schema().open_container(value)
    assert found is not None
    assert (found.arguments, found.mends) == (arguments, mends)


@pytest.mark.parametrize("value", [[], 5, True, "ls -la", '["a"]', ""])
def test_other_containers_hold_no_arguments(value):
    assert schema().open_container(value) is None


def test_a_bare_text_is_the_one_command():
    tool = schema({"command": {"type": "string"}}, required=["command"])
    found = tool.open_container("ls -la")
    assert found is not None
    assert (found.arguments, found.mends) == ({"command": "ls -la"}, ("bare_argument",))
    assert tool.open_container('{"command":"ls') is None
    assert schema({"path": {"type": "string"}}, required=["path"]).open_container("a") is None


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"path": "a"}, None),
        ({}, "missing required argument `path`"),
        ({"path": None}, "`path` must be a string"),
        ({"path": "a", "limit": 5.0}, None),
        ({"path": "a", "limit": 5.5}, "`limit` must be a whole number"),
        ({"path": "a", "limit": True}, "`limit` must be a number"),
        ({"path": "a", "limit": "5"}, "`limit` must be a number"),
        ({"path": "a", "ratio": None}, None),
        ({"path": "a", "flag": 1}, "`flag` must be true or false"),
        ({"path": "a", "any": object}, None),
        ({"path": "a", "unknown": [1]}, None),
        ({"path": "a", "files": ["a", 1]}, "`files[1]` must be a string"),
        ({"path": "a", "either": {"s": "x"}}, None),
        ({"path": "a", "either": {}}, "`either` fits none of its alternatives"),
        ({"path": "a", "entries": [{"v": 1}, {}]}, "missing required argument `entries[1].v`"),
        ({"path": "a", "maybe": 5}, "`maybe` must be a string or null"),
    ],
)
def test_arguments_are_checked_with_a_reason_in_words(arguments, fault):
    assert schema(required=["path"]).check(arguments) == fault


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        ({"const": 1}, 1, True),
        ({"const": 1}, 1, 2),
        ({"enum": [1, "a"]}, "a", "b"),
        ({"enum": [1, False]}, 1, True),
        ({"anyOf": [{"type": "integer"}, {"$ref": "#/properties/x/anyOf/0"}]}, 1, "a"),
        ({"type": "string", "enum": ["a"], "nullable": True}, None, "b"),
        (
            {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"type": "integer"}}}]},
            {"a": 1},
            {"a": "x"},
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"k": 1}, {"k": "x"}),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], ["a", 1]),
        ({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}, [1], ["x"]),
    ],
)
def test_combined_schemas_are_checked(declared, good, bad):
    tool = schema({"x": declared})
    assert tool.check({"x": good}) is None
    assert tool.check({"x": bad}) is not None


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": "object", "properties": None, "required": "path"},
        {"properties": {"x": 5}, "required": [None]},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#/anyOf/0"}]},
        {"properties": {"x": {"$ref": "#/properties/y"}, "y": {"$ref": "#/properties/x"}}},
        {"properties": {"x": {"items": {"$ref": "#/properties/x"}}}},
        {"properties": {"x": {"$ref": "#/properties/~1~0/a/99999999999"}}},
        {"items": [], "prefixItems": {}, "enum": [], "additionalProperties": []},
    ],
)
@pytest.mark.parametrize("value", [{"x": [[["a"]]]}, {"x": {"x": "1"}}, {"x": "<x>1</x>"}])
def test_no_schema_makes_trouble(parameters, value):
    tool = schema_of(Tool(name="t", parameters=parameters))
    tool.check(value)
    tool.from_json(value)
    tool.from_text("x", json.dumps(value["x"]))
    tool.from_texts("x", ["a", "b"])
    tool.fill_missing(value)


def test_branching_schemas_over_deep_values_stay_bounded():
    branch = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}
    union = {"anyOf": [{**branch, "required": [name]} for name in "abcdef"]}
    tool = schema_of(Tool(name="t", parameters={"$defs": {"n": union}, "properties": {"n": {"$ref": "#/$defs/n"}}}))
    value: dict[str, Any] = {}
    for _ in range(60):
        value = {"n": value, "f": 1}
    assert steps(lambda: tool.check(value), most=50_000)
    assert steps(lambda: tool.from_json(value), most=1_200_000)


def test_values_deeper_than_the_bound_do_not_recurse():
    value: Any = "1"
    for _ in range(900):
        value = [value]
    assert schema().check({"any": value, "entries": value}) is not None
    schema().from_json({"entries": value, "any": value})


@pytest.mark.cost
@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("options", "<note>"),
        ("options", "<note></note>x"),
        ("options", "<note>a</note>"),
        ("free", "<a></a>  "),
        ("node", "<next>"),
        ("files", "<item>a</item>"),
        ("files", "["),
        ("files", "<item>"),
        ("files", " "),
        ("limit", "1"),
        ("limit", "1."),
        ("ratio", "1e"),
        ("entries", "[{'v':"),
    ],
)
def test_time_grows_with_the_text(name, piece):
    def reading(size: int) -> Callable[[], object]:
        text = piece * (size // len(piece))
        return lambda: schema().from_text(name, text)

    assert_linear(reading, 1 << 14)


def test_strict_alternatives_take_no_members_of_each_other() -> None:
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}
    place = {"type": "object", "properties": {"latitude": {"type": "number"}}, "additionalProperties": False}
    schema = schema_of(Tool(name="edit", parameters={"type": "object", "oneOf": [city, place]}))
    assert schema.check({"city": "a"}) is None
    assert schema.check({"latitude": 1.5}) is None
    assert schema.check({"city": "a", "latitude": 1.5}) is not None


def test_whole_numbers_beyond_doubles_are_not_made_of_text() -> None:
    schema = schema_of(Tool(name="edit", parameters={"type": "object", "properties": {"n": {"type": "integer"}}}))
    assert schema.from_text("n", "9" * 308).value == int("9" * 308)
    assert schema.from_text("n", "9" * 309).fault


def test_what_all_of_several_schemas_require_is_required() -> None:
    parts = [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
    ]
    inner = schema_of(Tool(name="t", parameters={"type": "object", "properties": {"x": {"allOf": parts}}}))
    assert inner.check({"x": {"a": "1", "b": 2}}) is None
    assert inner.check({"x": {"a": "1"}}) == "missing required argument `x.b`"
    assert inner.check({"x": {"b": 2}}) == "missing required argument `x.a`"
    outer = schema_of(Tool(name="t", parameters={"allOf": [{"required": ["a"]}, {"required": ["b"]}]}))
    assert outer.required == {"a", "b"}


@pytest.mark.parametrize(
    ("declared", "text", "is_left_out"),
    [
        ({"type": "integer"}, "", True),
        ({"type": "number"}, " None\n", True),
        ({"type": ["integer", "number"]}, "NULL", True),
        ({"type": "integer"}, "5", False),
        ({"type": "boolean"}, "null", True),
        ({"type": "boolean"}, "", False),
        ({"type": "array"}, "null", True),
        ({"type": "array"}, "", False),
        ({"type": "object"}, " ", False),
        ({"type": "string"}, "null", False),
        ({"type": "string"}, "", False),
        ({"type": ["string", "integer"]}, "null", False),
        ({"type": ["integer", "null"]}, "null", False),
        ({}, "null", False),
    ],
)
def test_what_says_that_there_is_no_value(declared: dict[str, Any], text: str, is_left_out: bool) -> None:
    assert schema({"x": declared}).leaves_out("x", text) is is_left_out
    assert not schema({"x": declared}, required=["x"]).leaves_out("x", text)
    assert not schema({"x": declared}).leaves_out("y", text)
