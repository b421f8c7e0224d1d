"""The inspector by keyboard alone, and as it is read aloud; what of its colours can be told apart."""

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.core.records import CallRecord, LabelRecord, RequestRecord
from gateway.state.sqlite import SqliteStore
from tests.support.browser import Page, browser, needs_chromium
from tests.support.inspecting import becomes, holds, inspector, press

APP = Path(__file__).parents[2] / "gateway" / "inspector" / "app"
ROWS = "document.querySelectorAll('#rows li').length"
COUNT = 50
WIDGETS = frozenset(
    {"button", "checkbox", "combobox", "link", "listbox", "option", "radio", "searchbox", "spinbutton", "textbox"}
)
REGIONS = frozenset({"dialog", "region", "article", "search", "form", "table", "list"})
ACTIVE = """
(() => {
  const at = document.activeElement;
  if (at === document.body) return '';
  return at.id || at.dataset.filter || at.getAttribute('aria-label') || at.textContent.trim();
})()
"""
SEEN = """
(() => {
  const at = document.activeElement, style = getComputedStyle(at);
  const isOutlined = style.outlineStyle !== 'none' && style.outlineWidth !== '0px';
  return at === document.body || at.matches(':focus-visible') && isOutlined;
})()
"""
IDS = "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(each => each.id))"


def _request(number: int) -> RequestRecord:
    """Some of each: delivered, refused, and one that nobody can label."""
    is_refused = number % 3 == 1
    call = CallRecord(
        number=0,
        dialect="hermes",
        tool=f"tool_{number}",
        score=85 if is_refused else 97,
        decision="refused" if is_refused else "delivered",
        stage="known_tool" if is_refused else "sent",
        reason="low_confidence" if is_refused else "",
        sentence="0.85 is below 0.90" if is_refused else "",
        meant=True,
        before=f"<tool_call>{number}</tool_call>",
        span=(0, 11),
        after="" if is_refused else '{"name": "t", "arguments": {"path": "a"}}',
    )
    at = time.time() - number
    return RequestRecord(id=f"r{number}", at=at, key="k", model="llama", upstream="u", tools=1, calls=(call,))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "toolgate.db", timeout_s=5)
    yield opened
    await opened.close()


@needs_chromium
async def test_fifty_calls_are_labelled_by_keys_alone_and_each_line_says_what_became_of_it(tmp_path, store):
    await store.append([_request(number) for number in reversed(range(COUNT))])
    async with inspector(tmp_path) as address, browser(tmp_path / "profile") as page:
        await page.open(address, width=1280)
        await becomes(page, ROWS, COUNT)
        await _is_said_well(page)
        await press(page, "j")
        await becomes(page, "!!document.querySelector('#detail .actions')")
        await _is_said_well(page)
        for number in range(COUNT):
            await press(page, "r" if number % 3 else "w")

        async def labelled() -> dict[str, bool]:
            return {each.request_id: each.is_right async for each in store.scan(LabelRecord)}

        async def are_all() -> bool:
            return len(await labelled()) == COUNT

        await holds(are_all, 60)
        assert await labelled() == {f"r{number}": number % 3 > 0 for number in range(COUNT)}
        said = await page.value("[...document.querySelectorAll('#rows li')].map(e => e.getAttribute('aria-label'))")
        assert said[0].startswith("tool_0, llama, hermes, score 0.97, next turn unknown, labelled wrong")
        assert said[1].startswith("stayed text: tool_1, llama, hermes, score 0.85")
        order = await _tabbed(page)
        ways = ["rollout", "period", "pause", "help", "filter", "decision:refused", "reason:low_confidence"]
        assert [each for each in order if each in ways] == ways
        assert order.index("label:none") < order.index("rows") < order.index("right r") < order.index("curl c")
        for key in ("?", "t"):
            await press(page, key) if key == "?" else await _press_in_list(page, key)
            await becomes(page, "document.querySelector('#dialog').open")
            await _is_said_well(page)
            assert await page.value("document.querySelector('#dialog').contains(document.activeElement)")
            await page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape", windowsVirtualKeyCode=27)
            await page.call("Input.dispatchKeyEvent", type="keyUp", key="Escape", windowsVirtualKeyCode=27)
            await becomes(page, "document.querySelector('#dialog').open", wanted=False)


async def _press_in_list(page: Page, key: str) -> None:
    await page.value("document.querySelector('#rows').focus()")
    await press(page, key)


async def _is_said_well(page: Page) -> None:
    """Everything that can be used has a name; what a name refers to is there, and only once."""
    nodes = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    told = [
        (_word(node, "role"), _word(node, "name"), node.get("properties", [])) for node in nodes if not node["ignored"]
    ]
    assert [role for role, name, _ in told if role in WIDGETS | {"dialog"} and not name] == []
    options = [name for role, name, _ in told if role == "option"]
    assert len(options) == len([name for name in options if len(name) > 1])
    assert any(role == "listbox" and "newest first" in name for role, name, _ in told) or any(
        role == "dialog" for role, _, _ in told
    )
    assert await page.value(IDS) == 0


def _word(node: dict[str, Any], of: str) -> str:
    return str(node.get(of, {}).get("value", "")).strip()


async def _tabbed(page: Page) -> list[str]:
    """Where the focus goes, from the beginning until it leaves the page."""
    await page.value("(() => { const head = document.querySelector('h1'); head.tabIndex = -1; head.focus(); })()")
    order: list[str] = []
    for _ in range(60):
        await page.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", windowsVirtualKeyCode=9)
        await page.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", windowsVirtualKeyCode=9)
        at = await page.value(ACTIVE)
        if not at or (order and at == order[0]):
            break
        assert await page.value(SEEN), at
        order.append(at)
    return order


PAIRS = (
    *(
        (ink, paper)
        for ink in ("ink", "soft", "accent", "good", "bad", "warn", "would")
        for paper in ("paper", "panel")
    ),
    *((ink, "chosen") for ink in ("ink", "good", "bad", "would", "soft")),
    ("mark-ink", "mark"),
    ("paper", "accent"),
    ("paper", "ink"),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_written_can_be_told_from_what_it_stands_on(scheme):
    light, dark = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part))
        for part in _text().split("@media (prefers-color-scheme")[:2]
    )
    colours = light | (dark if scheme == "dark" else {})
    faint = {
        f"{ink} on {paper}": round(_contrast(colours[ink], colours[paper]), 2)
        for ink, paper in PAIRS
        if _contrast(colours[ink], colours[paper]) < 4.5
    }
    assert faint == {}


def _text() -> str:
    return (APP / "page.css").read_text(encoding="utf-8")


def _contrast(one: str, other: str) -> float:
    """https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio"""
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
