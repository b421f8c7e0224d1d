"""A few hundred inputs for each parser, always the same; the fuzzer sees what it is there to see."""

import random

import pytest

from tests.fuzz.__main__ import FUZZERS, run
from tests.fuzz.parsers import PARSERS, Parser, drawn

INPUTS = 300


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_fails_by_its_own_faults_alone(name: str) -> None:
    assert run(name, INPUTS, 1)[0] == 0


@pytest.mark.long
@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_fails_by_its_own_faults_alone_however_often(name: str) -> None:
    assert run(name, 20_000, 2)[0] == 0


def test_a_parser_that_fails_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(data: bytes) -> None:
        assert b"<<EOF" not in data

    parser = Parser(breaks, PARSERS["shell"].words)
    monkeypatch.setitem(FUZZERS, "shell", lambda seed: parser(drawn(random.Random(seed), parser)))
    assert 0 < run("shell", INPUTS, 1)[0] < INPUTS
