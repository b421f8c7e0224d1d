"""How many events of a stream leave late: for every kind of answer, cut and reader, fed one by one, without a clock.

Run `python -m tests.bench.lateness [--way NAME] [FILE ...]` for the table: in percent the events that left only after
two or more later ones had been read, and how many later ones the latest of them waited for. Files are answers of your
own; without any, those of the tests are taken.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from tests.support.golden import BARE, LINES, SAMPLES, SHORT
from tests.support.lateness import CUTS, share_late, waits, ways

WAYS = ("recovery deepseek-chat", "xml_prompt generic_xml", "xml_prompt incremental", "xml_text roo")


def answers() -> dict[str, tuple[str, ...]]:
    """The answers of the tests, by what they are."""
    return {
        **SAMPLES,
        **LINES,
        **{f"{kind}, bare": texts for kind, texts in BARE.items()},
        **{f"{kind}, short": texts for kind, texts in SHORT.items()},
    }


def table(way: str, texts: Mapping[str, tuple[str, ...]]) -> list[str]:
    """One line for each kind of answer."""
    how = ways()[way]
    lines = [f"{way:24}" + "".join(f"{cut:>14}" for cut in CUTS)]
    for kind, group in texts.items():
        cells = []
        for cut in CUTS.values():
            waited = [each for text in group for each in waits(how, list(cut(text)))]
            cells.append(f"{100 * share_late(waited):8.1f} % {max(waited):3}")
        lines.append(f"{kind:24}" + "".join(f"{cell:>14}" for cell in cells))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=sorted(ways()), action="append")
    parser.add_argument("file", nargs="*", type=Path)
    asked = parser.parse_args()
    texts = {path.name: (path.read_text(),) for path in asked.file} or answers()
    for way in asked.way or WAYS:
        print("\n".join(table(way, texts)), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
