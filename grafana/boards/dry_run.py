"""What would be done to untouched answers."""

from panels import ALL, increase, per_second, share

from boards.parts import NONE_YET, OUTCOMES, OVERHEAD, RISKY, Board, Row, panel

__all__ = ["DRY_RUN"]

_ANY = ((None, "green"), (1.0, "red"))
_VERDICTS = "toolgate_dryrun_verdicts_total"
_CHANGES = 'verdict="would_change"'
_FAILS = 'verdict="would_fail"'
_CALLS = 'verdict=~"would_change|would_fail"'

DRY_RUN = Board(
    uid="toolgate-dry-run",
    title="Toolgate / Dry run",
    description="What would be done to answers that go through untouched, and whether that is good enough to begin.",
    range="now-7d",
    rows=[
        Row(
            title="Verdicts",
            panels=[
                panel(
                    "series",
                    "Verdicts",
                    "Untouched answers read beside the stream per second, by verdict.",
                    "ops",
                    (per_second(_VERDICTS, by="verdict", of=ALL), "{{verdict}}"),
                    stacked=True,
                    width=12,
                    no_value="No dry run",
                ),
                panel(
                    "series",
                    "Would change, by dialect",
                    "Share of all answers that would become a call of this dialect.",
                    "percentunit",
                    (
                        f"{per_second(_VERDICTS, _CHANGES, by='dialect', of=ALL)}"
                        f" / on () group_left () ({per_second(_VERDICTS, of=ALL)} > 0)",
                        "{{dialect}}",
                    ),
                    stacked=True,
                    width=12,
                    no_value="No dry run",
                ),
                panel(
                    "series",
                    "Would fail, by dialect",
                    "Share of answers with a call that could not be read.",
                    "percentunit",
                    (share(_VERDICTS, _FAILS, by="dialect", of=ALL), "{{dialect}}"),
                    limits=RISKY,
                    width=12,
                    no_value="No dry run",
                ),
                panel(
                    "series",
                    "Dropped for time, by dialect",
                    "Share of answers that were not read because that would have taken too long, or failed.",
                    "percentunit",
                    (share(_VERDICTS, 'verdict="dropped"', by="dialect", of=ALL), "{{dialect}}"),
                    limits=RISKY,
                    width=12,
                    no_value="No dry run",
                ),
            ],
        ),
        Row(
            title="Noise and ignored answers",
            panels=[
                panel(
                    "series",
                    "Noise",
                    "Answers that read differently when cut in another way. Above zero, the gateway is at fault.",
                    "short",
                    (increase("toolgate_dryrun_noise_total", by="dialect", of=ALL), "{{dialect}}"),
                    limits=_ANY,
                    width=12,
                    no_value="No dry run",
                ),
                panel(
                    "series",
                    "Ignored by rule",
                    "Share of answers whose differences a rule leaves out. One that grows asks for a look.",
                    "percentunit",
                    (share(_VERDICTS, 'verdict="ignored"', of=ALL), "ignored"),
                    width=12,
                    no_value="No dry run",
                ),
            ],
        ),
        Row(
            title="Readiness",
            panels=[
                panel(
                    "stat",
                    "Answers judged",
                    "Answers read in the time shown. Green from 2,000 on, what a canary step asks for by default.",
                    "short",
                    increase(_VERDICTS, of=ALL),
                    limits=((None, "red"), (500.0, "orange"), (2000.0, "green")),
                    width=6,
                    height=5,
                    no_value="No dry run",
                ),
                panel(
                    "stat",
                    "Would fail, in all",
                    "Share of the answers with calls that could not be read, in the time shown. Red from 2 % on, "
                    "the default budget for failed transformations.",
                    "percentunit",
                    f"{increase(_VERDICTS, _FAILS, of=ALL)} / ({increase(_VERDICTS, _CALLS, of=ALL)} > 0)",
                    limits=((None, "green"), (0.01, "orange"), (0.02, "red")),
                    width=6,
                    height=5,
                    no_value="No calls seen",
                ),
                panel(
                    "stat",
                    "Reads that disagree",
                    "Answers that read differently when cut in another way; must be zero before anything goes live.",
                    "short",
                    increase("toolgate_dryrun_noise_total", of=ALL),
                    limits=_ANY,
                    width=6,
                    height=5,
                    no_value="No dry run",
                ),
                panel(
                    "stat",
                    "Added time, p99",
                    "What reading adds to a request, over the time shown; red above the budget of 50 ms.",
                    "s",
                    f"histogram_quantile(0.99, sum by (le) "
                    f'(increase({OVERHEAD}_bucket{{{ALL},phase="total"}}[$__range])))',
                    limits=((None, "green"), (0.025, "orange"), (0.05, "red")),
                    width=6,
                    height=5,
                ),
                panel(
                    "series",
                    "Failed calls a day, projected",
                    "How many calls a day would fail to be read if this share of conversations were live. Clients of "
                    "those calls get what they get today: text.",
                    "short",
                    *(
                        (
                            f"{percent / 100:g} * 86400 * {per_second(_VERDICTS, _FAILS, of=ALL)}",
                            f"at {percent} %",
                        )
                        for percent in (1, 5, 25)
                    ),
                    width=12,
                    no_value="No dry run",
                ),
                panel(
                    "series",
                    "How answers fare today, by arm",
                    "Share of answers of which the conversation's next request told that a call was faulty or that no "
                    "tool was used. In the untouched arms this is what there is to gain.",
                    "percentunit",
                    (share(OUTCOMES, 'outcome!="accepted"', by="arm"), "{{arm}}"),
                    width=12,
                    no_value=NONE_YET,
                ),
            ],
        ),
    ],
)
