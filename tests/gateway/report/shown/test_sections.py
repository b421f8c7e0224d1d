"""What the report says first: what is switched off and why, and how often each model leaks."""

from attrs import evolve

from gateway.core.records import DecisionRecord
from gateway.report.shown.blocks import Command, Table, Words
from gateway.report.shown.markdown import render
from gateway.report.shown.sections import heading, sections
from tests.gateway.report.test_figures import RULES, figures_of
from tests.support.week import BEGIN, week


def test_a_slice_that_is_off_is_told_with_its_reason_its_requests_and_the_way_back():
    off = DecisionRecord(
        at=BEGIN,
        decision="slice_off",
        reason="live answers are bad 8 times as often",
        by="judge",
        epoch=3,
        state_before="canary",
        state_after="canary",
        slice="recovery/hermes",
        numbers={"difference": 0.4},
        examples=("req-000007", "req-000009"),
    )
    made = evolve(week(300), decisions=(off,))
    figures = figures_of(made, evolve(RULES, slices_off=("recovery/hermes",)))
    first = sections(figures)[0]
    assert first.ident == "rollout"
    said, numbers, requests = (block.text for block in first.blocks if isinstance(block, Words))
    assert said.startswith("recovery/hermes is switched off since")
    assert off.reason in said
    assert numbers == "Numbers: difference 0.4."
    assert requests == "Requests to look at: req-000007 req-000009"
    (command,) = (block for block in first.blocks if isinstance(block, Command))
    assert command.text.startswith("toolgate rollout slice recovery/hermes on --reason ")
    assert "req-000009" in render(figures)


def test_a_rollback_is_told_first_too():
    rolled = figures_of(week(300), evolve(RULES, mode="rolled_back"))
    first = sections(rolled)[0]
    assert first.ident == "rollout"
    assert [type(block) for block in first.blocks] == [Words, Words, Command]
    assert "reason 24" in first.blocks[0].text  # type: ignore[union-attr]
    assert "rollout" not in [section.ident for section in sections(figures_of(week(300)))]


def test_models_come_before_gates_and_before_volume():
    figures = figures_of(week(900))
    names = [section.ident for section in sections(figures)]
    assert names.index("models") < names.index("gates") < names.index("volume")
    models = next(section for section in sections(figures) if section.ident == "models")
    leaks, valid = (block for block in models.blocks if isinstance(block, Table))
    assert {row[0] for row in leaks.rows} == {each.model for each in figures.leaks.models}
    assert {row[0] for row in valid.rows} == {each.model for each in figures.volume.structured}
    assert heading(figures).tiles[0].detail.startswith(f"{figures.leaks.leaked.hits:,} of {figures.leaks.answers:,}")
    assert all(section.title != "PeriodFigure" for section in sections(figures))
