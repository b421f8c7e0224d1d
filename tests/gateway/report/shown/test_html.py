"""The HTML report: well-formed, alone, escaped, and fit for a phone; the other renderings as far as they share that."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gateway.cli.look import terminal
from gateway.core.records import DecisionRecord
from gateway.report.facts.tree import Figures
from gateway.report.shown import markdown
from gateway.report.shown.blocks import Command, Table, Words
from gateway.report.shown.html import render
from gateway.report.shown.markdown import render as render_markdown
from gateway.report.shown.sections import heading, sections
from tests.gateway.report.test_figures import RULES, figures_of
from tests.support.browser import browser, needs_chromium
from tests.support.week import BEGIN, Week, evolve, hostile, week

EMPTY = Week(requests=(), outcomes=(), feedback=(), labels=(), decisions=())


@pytest.fixture(scope="module", params=["usual", "hostile", "empty"])
def figures(request: pytest.FixtureRequest) -> Figures:
    made = {"usual": lambda: week(1500), "hostile": lambda: hostile(week(400)), "empty": lambda: EMPTY}[request.param]()
    return figures_of(made)


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.replace("<!DOCTYPE html>", "", 1))  # noqa: S314 - our own document


def walk(text: str) -> Iterator[ElementTree.Element]:
    return parsed(text).iter()


def test_it_is_well_formed(figures):
    assert parsed(render(figures)).tag == "html"


def test_it_asks_for_nothing_and_runs_nothing(figures):
    text = render(figures)
    for element in walk(text):
        assert element.tag not in ("script", "link", "img", "iframe", "object", "embed", "base", "form", "image", "use")
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            assert name not in ("src", "srcset", "style", "action", "data", "background")
            assert name != "href" or value.startswith("#")
    style = "".join(element.text or "" for element in walk(text) if element.tag == "style")
    assert "url(" not in style
    assert "@import" not in style
    policies = [element.attrib["content"] for element in walk(text) if "http-equiv" in element.attrib]
    assert [policy.split(";")[0] for policy in policies] == ["default-src 'none'"]


def test_an_html_parser_sees_the_same_elements_as_an_xml_parser(figures):
    text = render(figures)
    seen: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            seen.append(tag)

        handle_startendtag = handle_starttag

    Reader().feed(text)
    assert seen == [element.tag for element in walk(text)]


def test_every_link_leads_to_a_section_and_every_name_is_there_once(figures):
    elements = list(walk(render(figures)))
    names = [element.attrib["id"] for element in elements if "id" in element.attrib]
    assert len(names) == len(set(names))
    assert {element.attrib["href"] for element in elements if element.tag == "a"} == {f"#{name}" for name in names}
    assert names == [section.ident for section in sections(figures)]


def test_every_chart_has_a_name_and_every_table_its_heads(figures):
    for element in walk(render(figures)):
        if element.tag == "svg":
            assert element.attrib["role"] == "img"
            assert element.attrib["aria-label"]
        if element.tag == "table":
            assert element.find("caption") is not None
            heads = element.findall("./thead/tr/th")
            assert all(head.attrib["scope"] == "col" for head in heads)
            for row in element.findall("./tbody/tr"):
                assert sum(int(cell.attrib.get("colspan", "1")) for cell in row) == len(heads)


def test_the_verdict_comes_first_and_then_what_could_go_wrong(figures):
    text = render(figures)
    verdict = figures.readiness.verdict
    assert text.index(f"{verdict[0].upper()}{verdict[1:]}</strong>") < text.index("<section")
    order = [section.ident for section in sections(figures)]
    first = [name for name in ("rollout", "models") if name in order]
    assert order[: len(first) + 4] == [*first, "gates", "wrong", "missed", "noise"]
    assert [tile.label for tile in heading(figures).tiles][:2] == ["leak rate", "valid-call rate"]


def test_no_control_character_is_left_in_any_rendering(figures, capsys):
    terminal.show(figures, colour=False, width=80)
    for text in (render(figures), markdown.render(figures), capsys.readouterr().out):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f​‮]", text)


def test_markup_of_records_is_text_in_markdown_too():
    text = markdown.render(figures_of(hostile(week(300))))
    outside = re.sub(r"^( *)(`{3,})text\n.*?\n\1\2$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside.replace("\\<", "")
    heads = [line.count("|") - line.count("\\|") for line in outside.splitlines() if line.startswith("|")]
    assert heads
    blocks = re.split(r"\n(?!\|)", outside)
    for block in blocks:
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.count("|") - line.count("\\|") for line in rows}) <= 1


def test_a_fence_in_a_text_does_not_end_the_fence_around_it():
    made = week(300)
    text = "a\n```\n# not a heading\n`````\nb"
    requests = tuple(evolve(r, calls=tuple(evolve(call, before=text) for call in r.calls)) for r in made.requests)
    shown = markdown.render(figures_of(evolve(made, requests=requests)))
    fence: str | None = None
    for line in map(str.strip, shown.splitlines()):
        if fence is None and line.startswith("```"):
            fence = line.removesuffix("text")
        elif fence is not None and line and set(line) == {"`"} and len(line) >= len(fence):
            fence = None
        else:
            assert fence is not None or line != "# not a heading"
    assert fence is None
    assert "# not a heading" in shown


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_terminal_keeps_to_its_width(width, capsys):
    figures = figures_of(week(300))
    terminal.show(figures, colour=False, width=width)
    text = capsys.readouterr().out
    assert text.startswith(figures.readiness.verdict.upper())
    tables = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert max(map(len, tables)) <= width
    assert "\x1b" not in text


@pytest.mark.system
@needs_chromium
async def test_a_browser_shows_it_without_overflow_errors_or_requests(figures, tmp_path: Path):
    target = tmp_path / "report.html"
    target.write_text(render(figures), encoding="utf-8")
    async with browser(tmp_path / "profile") as page:
        for width, dark in ((320, False), (400, False), (400, True), (1400, False), (1400, True)):
            await page.open(target.as_uri(), width=width, dark=dark)
            await page.value("document.querySelectorAll('details').forEach(each => { each.open = true })")
            assert await page.value("document.documentElement.scrollWidth") <= width
            ink, paper = await page.value(
                "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
            )
            assert _luminance(ink) > _luminance(paper) if dark else _luminance(ink) < _luminance(paper)
            assert await page.value(_WORST_CONTRAST) >= 4.5
        assert await page.value("document.title") == f"Toolgate report: {figures.readiness.verdict}"
    assert page.complaints == []
    assert set(page.requests) == {target.as_uri()}


_WORST_CONTRAST = """
(() => {
  const numbers = text => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, place) => sum + v * [.2126, .7152, .0722][place], 0);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(node).backgroundColor);
      if (a) return [r, g, b];
    }
    return [255, 255, 255];
  };
  let worst = 21;
  const all = 'p, td, th, h1, h2, h4, h5, dt, dd, pre, summary, caption, strong, text';
  for (const node of document.querySelectorAll(all)) {
    const style = getComputedStyle(node);
    const ink = light(numbers(node.tagName === 'text' ? style.fill : style.color)), paper = light(behind(node));
    worst = Math.min(worst, (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05));
  }
  return worst;
})()
"""


def _luminance(colour: str) -> float:
    return sum(map(float, re.findall(r"[0-9.]+", colour)[:3]))


# --- What the report says first: what is switched off and why, and how often each model leaks


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
    assert "req-000009" in render_markdown(figures)


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
