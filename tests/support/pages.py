"""The pages' tables, written from the code: `python -m tests.support.pages` puts each in its place.

A table stands between `<!-- NAME -->` and `<!-- end of NAME -->`; whoever changes what it lists runs the command.
Links, headings and addresses are read here too, as GitHub reads them.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gateway.cli.root import cli
from gateway.config.reference import settings_table_markdown
from gateway.core.errors import leaves, meaning
from gateway.telemetry.metrics import metrics_table_markdown
from strategies.dialects.rows import TABLE

__all__ = [
    "PAGES",
    "ROOT",
    "TABLES",
    "anchors",
    "faults_of",
    "filled",
    "is_address",
    "leaves",
    "links",
    "part",
    "sources",
]

_SOURCE = re.compile(r"(\[([^\[\]]+)\]\((https?://[^\s()]+)\))")

_THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+")

_OF_HOST = {
    "github.com": re.compile(r"[\w.-]+/[\w.-]+/(?:(?:issues|pull)/\d+|blob/[\w.-]+/[\w./-]+\.\w+)"),
    "huggingface.co": re.compile(r"(?:datasets/)?[\w.-]+/[\w.-]+(?:#[\w-]+|/blob/main/[\w./-]+\.\w+)?"),
    "www.rfc-editor.org": re.compile(r"rfc/rfc\d+(?:#[\w.-]+)?"),
}

"""What an address at one of these hosts looks like; at others, whatever has a host and a path."""


def sources(text: str) -> list[tuple[str, str]]:
    """The links to elsewhere in a text: each as it is written, and its address."""
    return [(whole, address) for whole, _, address in _SOURCE.findall(text)]


def faults_of(text: str) -> list[str]:
    """The links that cannot lead where they say, and threads and addresses that are no links."""
    found = [whole for whole, name, address in _SOURCE.findall(text) if not _leads(name, address)]
    rest = _SOURCE.sub("", text)
    return found + _THREAD.findall(rest) + re.findall(r"https?://\S+", rest)


def is_address(address: str) -> bool:
    """Whether an address is one that can lead to something."""
    host, _, path = address.removeprefix("https://").partition("/")
    if not address.startswith("https://") or "." not in host or not path:
        return False
    return host not in _OF_HOST or _OF_HOST[host].fullmatch(path) is not None


def _leads(name: str, address: str) -> bool:
    thread = _THREAD.fullmatch(name)
    is_threads = thread is None or address == f"https://github.com/{name.replace('#', '/issues/')}"
    return is_address(address) and is_threads


# --- Tables, links and headings


ROOT = Path(__file__).parents[2]

PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part in ("data", "node_modules") for part in path.relative_to(ROOT).parts)
)


def _errors() -> str:
    rows = ["| code | status | means |", "| --- | --- | --- |"]
    for each in sorted(leaves(), key=lambda each: (each.status, each.code)):
        rows.append(f"| `{each.code}` | {each.status} | {meaning(each)} |")
    return "\n".join(rows)


def _exit_codes() -> str:
    """What the help of `toolgate` says of them."""
    said = re.search(r"Exit codes: (.+?)\.\s", re.sub(r"\s+", " ", f"{cli.help} "))
    assert said is not None
    codes = re.findall(r"(?:^|, )(\d+) (.+?)(?=, \d|$)", said[1])
    return "\n".join(["| code | means |", "| --- | --- |", *(f"| {code} | {means} |" for code, means in codes)])


def _dialects() -> str:
    """All rows, in the order in which they are tried."""
    lines = ["| dialect | family | level | written | models |", "| --- | --- | --- | --- | --- |"]
    for row in TABLE:
        models = ", ".join(f"`{glob}`" for glob in row.models)
        lines.append(f"| `{row.id}` | {row.family} | {row.level} | {'yes' if row.renderer else ''} | {models} |")
    return "\n".join(lines)


TABLES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "deploy/SETTINGS.md": {"settings": settings_table_markdown, "errors": _errors, "exit codes": _exit_codes},
    "grafana/METRICS.md": {"metrics": metrics_table_markdown},
    "strategies/README.md": {"dialects": _dialects},
}

"""Each page with tables of the code, and what writes them."""


def part(page: str, name: str) -> str:
    """What stands between the marks of this name."""
    found = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end of {name} -->", page, re.DOTALL)
    assert len(found) == 1, f"the marks of {name!r} stand there {len(found)} times"
    return str(found[0]).strip()


def filled(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """The page with its tables as the code has them."""
    for name, table in tables.items():
        part(page, name)
        head, mark, rest = page.partition(f"<!-- {name} -->\n")
        page = f"{head}{mark}{table().strip()}\n{rest[rest.index('<!-- end of') :]}"
    return page


def _prose(page: str) -> str:
    """The page without what it quotes as code."""
    return re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """The names by which a page's headings can be linked to."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#{1,6} (.+)$", _prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def links(page: str) -> Iterator[tuple[str, str]]:
    """Each link that stays within the project: its path, empty for this page, and its anchor."""
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", _prose(page)):
        path, _, anchor = target.partition("#")
        yield path, anchor


def main() -> None:
    """Write the tables, and name the pages that were not up to date."""
    for name, tables in TABLES.items():
        path = ROOT / name
        page = path.read_text(encoding="utf-8")
        if (wanted := filled(page, tables)) != page:
            path.write_text(wanted, encoding="utf-8")
            sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
