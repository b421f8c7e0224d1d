"""The look of the HTML report: one sheet, light and dark, from a phone's width up."""

__all__ = ["STYLE"]

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #566273; --line: #dde2e9; --track: #e8ecf1;
  --part0: #2f6fb3; --part1: #c2813a; --reach: #a9c8e8; --code: #f1f3f6;
  --good: #17663a; --good-bg: #e4f3ea; --bad: #a3221b; --bad-bg: #fbe9e7; --wait: #7a5200; --wait-bg: #fbf1dc;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --card: #1a2029; --ink: #e4e9f0; --soft: #a3afbf; --line: #2d3642; --track: #29313c;
    --part0: #6aa9ec; --part1: #e0a45f; --reach: #35587d; --code: #12161c;
    --good: #7fd6a2; --good-bg: #14301f; --bad: #ff9d94; --bad-bg: #3b1917; --wait: #f0c46c; --wait-bg: #35290f;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.55 system-ui, sans-serif; }
main, header, footer { max-width: 72rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; }
h1 { font-size: 1rem; font-weight: 600; color: var(--soft); margin: 0 0 .75rem; letter-spacing: .02em; }
h2 { font-size: 1.2rem; margin: 0 0 .75rem; }
p { margin: .5rem 0; overflow-wrap: anywhere; }
a { color: inherit; }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--part0); outline-offset: 2px; }
section, .verdict { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.25rem; }
section { margin: 1rem 0; scroll-margin-top: 1rem; }
.verdict { border-left-width: 8px; }
.verdict strong { display: block; font-size: 1.9rem; line-height: 1.2; }
.verdict p { font-size: 1.05rem; margin: .35rem 0 0; }
.verdict.good { background: var(--good-bg); border-color: var(--good); } .verdict.good strong { color: var(--good); }
.verdict.bad { background: var(--bad-bg); border-color: var(--bad); } .verdict.bad strong { color: var(--bad); }
.verdict.waiting { background: var(--wait-bg); border-color: var(--wait); }
.verdict.waiting strong { color: var(--wait); }
.period, .note, .legend, footer { color: var(--soft); font-size: .87rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 9.5rem), 1fr)); gap: .75rem;
  margin: 1rem 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1rem 1.25rem; }
.tile dt { color: var(--soft); font-size: .87rem; }
.tile dd { margin: 0; } .tile dd.value { font-size: 1.6rem; font-weight: 600; line-height: 1.3; }
.tile dd.detail { color: var(--soft); font-size: .87rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; margin: 1rem 0 0; padding: 0;
  font-size: .9rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 0 2rem; }
.pair > * { min-width: 0; }
figure { margin: .75rem 0 1.25rem; max-width: 46rem; }
figcaption, caption { font-weight: 600; text-align: left; font-size: .92rem; padding-bottom: .4rem; }
.legend { margin: 0 0 .4rem; } .key { margin-right: 1rem; white-space: nowrap; }
.swatch { display: inline-block; width: .7rem; height: .7rem; border-radius: 3px; margin-right: .4rem; }
.swatch.part0 { background: var(--part0); } .swatch.part1 { background: var(--part1); }
svg { display: block; overflow: visible; }
svg text { fill: var(--ink); font-size: 13px; }
svg .value, svg .tick { fill: var(--soft); } svg .tick { font-size: 11px; }
.part0 { fill: var(--part0); } .part1 { fill: var(--part1); } .reach { fill: var(--reach); }
.track { fill: var(--track); }
.axis { stroke: var(--line); }
.scroll { overflow-x: auto; margin: .75rem 0 1.25rem; }
table { border-collapse: collapse; min-width: min(100%, 34rem); font-size: .9rem; }
.pair table { width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; white-space: nowrap; }
td { overflow-wrap: break-word; max-width: 26rem; }
td:nth-child(n+2):not(.number) { min-width: 5.5rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
tr.good td:nth-child(2) { color: var(--good); font-weight: 600; }
tr.bad td { background: var(--bad-bg); } tr.bad td:nth-child(2) { color: var(--bad); font-weight: 600; }
tr.waiting td:nth-child(2) { color: var(--wait); font-weight: 600; } tr.thin td { color: var(--soft); }
pre { background: var(--code); border: 1px solid var(--line); border-radius: 8px; padding: .6rem .8rem;
  margin: .25rem 0; white-space: pre-wrap; overflow-wrap: anywhere; font: .82rem/1.5 ui-monospace, monospace;
  max-height: 22rem; overflow-y: auto; }
details { border-top: 1px solid var(--line); padding: .5rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
article { margin: .9rem 0 1.4rem; } article h4 { font-size: .9rem; margin: 0; overflow-wrap: anywhere; }
article p { font-size: .87rem; color: var(--soft); margin: .1rem 0 .4rem; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: .5rem 1rem; }
.sides > div { min-width: 0; } .sides h5 { margin: 0; font-size: .8rem; font-weight: 500; color: var(--soft); }
footer { padding: 1rem 1rem 2.5rem; }
@media (max-width: 30rem) { section, .verdict { padding: 1rem; } .verdict strong { font-size: 1.6rem; }
  th, td { padding-right: .6rem; font-size: .84rem; } }
@media print { body { background: none; } section { break-inside: avoid; } }
"""
