from strategies.clients.prompt_tools import PromptTool, prompt_tools
from tests.support.tag_clients import CLINE_TOOLS, ROO_TOOLS, prompt

ONE = """# Tools

## read_file
Description: Request to read.
Parameters:
- path: (required) where
  - inner: (required) not one of its own
- start_line: (optional) from here
- end_line: to here
Usage:
<read_file>
<path>a</path>
<start_line>1</start_line>
</read_file>

Example: the same
<read_file>
<other>b</other>
</read_file>

# Guidelines
- rule: (required) no parameter
"""


def test_a_section_gives_name_parameters_and_what_is_required():
    assert prompt_tools(ONE) == (
        PromptTool(name="read_file", parameters=("path", "start_line", "end_line"), required=frozenset({"path"})),
    )


def test_whole_prompts_give_all_their_tools():
    for client, tools in (("roo", ROO_TOOLS), ("cline", CLINE_TOOLS)):
        found = {tool.name: tool for tool in prompt_tools(prompt(client))}
        assert list(found) == list(tools)
        for name, parameters in tools.items():
            assert found[name].parameters == tuple(parameter.rstrip("*") for parameter in parameters)
            expected = {parameter[:-1] for parameter in parameters if parameter.endswith("*")}
            assert found[name].required == expected


def test_a_section_without_usage_is_no_tool():
    assert prompt_tools("## read_file\nDescription: x\nParameters:\n- path: (required) y\n") == ()
    assert prompt_tools("## Some notes\n<notes>\n</notes>\n") == ()
    assert prompt_tools("") == ()


def test_parameters_that_only_the_usage_shows_are_taken_from_it():
    (tool,) = prompt_tools("## x_tool\nUsage:\n<x_tool>\n<one>\n<two>deep</two>\n</one>\n<three>y</three>\n</x_tool>\n")
    assert tool.parameters == ("one", "three")
    (tool,) = prompt_tools("## x_tool\r\nUsage:\r\n<x_tool>\r\n<one>a</one>\r\n</x_tool>\r\n")
    assert tool.parameters == ("one",)


def test_the_first_section_of_a_name_counts_and_there_are_not_endlessly_many():
    section = "## x{}\nUsage:\n<x{}>\n<a>1</a>\n</x{}>\n"
    assert len(prompt_tools(section.format(1, 1, 1) + section.format(1, 1, 1).replace("<a>", "<b>"))) == 1
    assert len(prompt_tools("".join(section.format(n, n, n) for n in range(1000)))) == 256
