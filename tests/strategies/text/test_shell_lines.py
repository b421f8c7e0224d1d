"""Shell commands: which words run, which operators stand in them, and what is not certain."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.text.shell_lines import ShellFault, heredocs, simple_commands


@pytest.mark.parametrize(
    ("text", "words", "operators", "lines"),
    [
        ("ls -la", ["ls"], False, 1),
        ("# a\nls", ["ls"], False, 1),
        ("ls # then | wc", ["ls"], False, 1),
        ("ls \\\n -la", ["ls"], False, 1),
        ("grep 'a|b;c' \"x > y\" z\\|w", ["grep"], False, 1),
        ("cat <<'E'\n$(rm x) | y\nE", ["cat"], False, 1),
        ("cat <<-E\n\tx\n\tE\n", ["cat"], False, 1),
        ("cat <<E <<F\n1\nE\n2\nF\nls", ["cat", "ls"], True, 2),
        ("ls\npwd", ["ls", "pwd"], True, 2),
        ("ls; pwd && wc || rm", ["ls", "pwd", "wc", "rm"], True, 1),
        ("ls | wc -l > out 2>&1", ["ls", "wc"], True, 1),
        ("ls &", ["ls"], True, 1),
        ("ls $(rm x)", ["ls", "rm"], True, 1),
        ('ls "a $(rm "b") c"', ["ls", "rm"], True, 1),
        ("ls `rm x` y", ["ls", "rm"], True, 1),
        ("(ls; rm)", ["ls", "rm"], True, 1),
        ("diff <(ls a) <(rm b)", ["diff", "ls", "rm"], True, 1),
        ("ls ${x:-$(rm)}", ["ls", "rm"], True, 1),
        ("wc <<< word", ["wc"], True, 1),
        ("ls $HOME 'it''s'", ["ls"], False, 1),
        ("", [], False, 0),
    ],
)
def test_parts_are_found(text, words, operators, lines):
    found = simple_commands(text)
    assert (found.words, found.operators, found.lines) == (words, operators, lines)


@pytest.mark.parametrize(
    "text",
    [
        "ls 'x",
        'ls "x',
        "ls $(x",
        "ls `x",
        "ls )",
        "A=1 ls",
        "$x",
        "'ls'",
        '"$(x)"',
        "{ ls; }",
        "cat <<E\nx",
        "cat <<E\n$(rm)\nE",
        "ls $'\\x41'",
        "ls " + "$(ls " * 40,
    ],
)
def test_what_is_not_certain_is_refused(text):
    with pytest.raises(ShellFault):
        simple_commands(text)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cat <<EOF", ["EOF"]),
        ("cat <<-'EOF' > x", ["EOF"]),
        ('cat << "E"', ["E"]),
        ("cat <<A <<B", ["A", "B"]),
        ("echo '<<EOF'", []),
        ('echo "<<EOF"', []),
        ("ls # <<EOF", []),
        ("wc <<< word", []),
        ("echo $((1 << 2))", []),
    ],
)
def test_heredocs_of_a_line(line, words):
    assert [word for word, _, _ in heredocs(line)] == words


@given(st.text(alphabet="ls rm'\"\\`$(){}|;&<>#\nE-="))
@settings(max_examples=300, deadline=None)
def test_nothing_but_its_own_fault_is_raised(text):
    heredocs(text.split("\n", maxsplit=1)[0])
    with suppress(ShellFault):
        simple_commands(text)


@given(
    st.lists(st.sampled_from(["ls", "rm -r x", "wc"]), min_size=1, max_size=4), st.sampled_from([";", "&&", "|", "\n"])
)
def test_no_command_hides_behind_another(commands, operator):
    found = simple_commands(f" {operator} ".join(commands))
    assert found.words == [command.split()[0] for command in commands]
    assert found.operators == (len(commands) > 1)
