"""Where a live arm would ask a model otherwise than it was watched, where prompts are cut, where calls were thought."""

from gateway.core.events import IN_REASONING
from gateway.core.records import CallRecord, RequestRecord
from gateway.report.facts.tree import Figures, ReportRules
from gateway.report.figures import Tally
from gateway.report.shown.sections import sections


def record(number: int, **more: object) -> RequestRecord:
    told = {"arm": "dry_run", "strategy": "xml_prompt", "tools": 2, "native_calls": 1, **more}
    return RequestRecord(id=f"r{number}", at=float(number), key="k", model="qwen3", upstream="default", **told)  # type: ignore[arg-type]


def figures_of(records: list[RequestRecord]) -> Figures:
    tally = Tally()
    for each in records:
        tally.add_request(each)
    return tally.figures(rules=ReportRules(), since=0.0, until=100.0, made_at=100.0, version="9")


def test_models_that_would_be_prompted_are_told_with_their_native_calls() -> None:
    asked = [record(number) for number in range(30)]
    others = [record(40, native_calls=0), record(41, arm="live"), record(42, strategy="recovery"), record(43, tools=0)]
    (row,) = figures_of([*asked, *others]).asked_differently
    assert (row.model, row.native.hits, row.native.of) == ("qwen3", 30, 31)
    (section,) = (each for each in sections(figures_of(asked)) if each.ident == "asking")
    assert section.title == "Live asks differently"


def test_prompts_that_were_cut_are_told() -> None:
    cut = [record(number, arm="live", notes=("context_cut: 4096 tokens were read",)) for number in range(3)]
    (row,) = figures_of(cut).context_cuts
    assert (row.model, row.answers, row.last) == ("qwen3", 3, "4096 tokens were read")
    assert any(each.ident == "asking" for each in sections(figures_of(cut)))
    assert not any(each.ident == "asking" for each in sections(figures_of([record(1, strategy="recovery")])))


def test_calls_that_stood_in_reasoning_are_told() -> None:
    call = CallRecord(number=0, dialect="hermes", tool="read", score=97, decision="would_deliver", stage="sent")
    thought = CallRecord(
        number=1,
        dialect="hermes",
        tool="read",
        score=97,
        decision="would_deliver",
        stage="sent",
        reasons=(IN_REASONING,),
    )
    figures = figures_of([record(1, strategy="recovery", calls=(call, thought), verdict="would_change")])
    assert (figures.would.calls, figures.would.in_reasoning) == (2, 1)
    (section,) = (each for each in sections(figures) if each.ident == "success")
    assert any("1 of these calls stood in a field of reasoning" in str(block) for block in section.blocks)
