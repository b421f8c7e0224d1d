"""Simulates rollouts before the judge itself: how often it rolls back without a fault, and how soon with one.

Run `python -m tests.bench.judge` for the whole table. Each trial looks at the judge after every 50 live requests (or,
at shares above 50 %, after every 50 untouched ones), and bad requests come from conversations drawn at random.
"""

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator

from attrs import frozen

from gateway.rollout.judge import Counts, JudgeRules, JudgeState, finding, step

__all__ = ["SCENARIOS", "Result", "Scenario", "simulate"]

BLOCK = 50
RULES = JudgeRules()

Risks = Callable[[int], tuple[float, float]]
"""The shares of bad requests in the control and the live arm, after so many live requests."""


@frozen(kw_only=True)
class Scenario:
    """What is true, and how long it is watched."""

    name: str
    risks: Risks
    share: float = 0.1
    live_requests: int = 20_000
    keys: int = 2000
    tenant_share: float = 0.0
    """Share of the live requests that one conversation makes, all of them bad."""
    since: int = 0
    """Live requests before the fault begins."""


@frozen(kw_only=True)
class Result:
    """Live requests from the fault until it was found, for each trial that found it."""

    trials: int
    delays: tuple[int, ...]

    @property
    def found_share(self) -> float:
        return len(self.delays) / self.trials

    @property
    def median(self) -> float | None:
        return statistics.median(self.delays) if self.delays else None


def simulate(scenario: Scenario, *, trials: int, seed: int = 1, rules: JudgeRules = RULES) -> Result:
    """Run that many trials; the same seed gives the same result."""
    found = (_trial(scenario, random.Random(f"{seed}/{trial}"), rules) for trial in range(trials))
    return Result(trials=trials, delays=tuple(delay for delay in found if delay is not None))


def _trial(scenario: Scenario, rng: random.Random, rules: JudgeRules) -> int | None:
    state = JudgeState()
    seen = 0
    for block in _blocks(scenario, rng):
        seen += block.live
        state = step(state, block, rules)
        if finding(state, rules) is not None:
            return seen - scenario.since
    return None


def _blocks(scenario: Scenario, rng: random.Random) -> Iterator[Counts]:
    share = scenario.share
    smaller = min(share, 1 - share)
    live, control = round(BLOCK * share / smaller), round(BLOCK * (1 - share) / smaller)
    tenant = round(live * scenario.tenant_share)
    for seen in range(0, scenario.live_requests, live):
        control_risk, live_risk = scenario.risks(seen)
        live_bad = _bad(rng, live - tenant, live_risk, "live", max(1, round(scenario.keys * share)))
        if tenant:
            live_bad |= {"tenant"}
        control_bad = _bad(rng, control, control_risk, "control", max(1, round(scenario.keys * (1 - share))))
        yield Counts(live=live, control=control, live_bad=live_bad, control_bad=control_bad)


def _bad(rng: random.Random, requests: int, risk: float, arm: str, keys: int) -> frozenset[str]:
    return frozenset(f"{arm}{rng.randrange(keys)}" for _ in range(_binomial(rng, requests, risk)))


def _binomial(rng: random.Random, requests: int, risk: float) -> int:
    if risk > 0.2:
        return sum(rng.random() < risk for _ in range(requests))
    count, place = 0, -1
    rate = -math.log1p(-risk)
    while True:
        # From one bad request to the next.
        place += 1 + int(rng.expovariate(rate))
        if place >= requests:
            break
        count += 1
    return count


def steady(control: float, live: float) -> Risks:
    """The same shares all the time."""
    return lambda _: (control, live)


def late(control: float, live: float, since: int) -> Risks:
    """Alike at first; from then on the live arm is worse."""
    return lambda seen: (control, live if seen >= since else control)


def outage(seen: int) -> tuple[float, float]:
    """The model server fails: a fifth of all requests for a while, later half of them, in both arms."""
    if 5000 <= seen < 7000:
        return 0.2, 0.2
    if 12_000 <= seen < 14_000:
        return 0.5, 0.5
    return 0.01, 0.01


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="0.01 % -> 0.01 %", risks=steady(0.0001, 0.0001)),
        Scenario(name="1 % -> 1 %", risks=steady(0.01, 0.01)),
        Scenario(name="4 % -> 4 %", risks=steady(0.04, 0.04)),
        Scenario(name="1 % -> 5 %", risks=steady(0.01, 0.05)),
        Scenario(name="1 % -> 15 %", risks=steady(0.01, 0.15)),
        Scenario(name="0.5 % -> 2 %", risks=steady(0.005, 0.02)),
        Scenario(name="0.01 % -> 2 %", risks=steady(0.0001, 0.02)),
        Scenario(name="outage in both arms", risks=outage),
        Scenario(name="good for 10,000, then 5 %", risks=late(0.01, 0.05, 10_000), since=10_000),
        Scenario(name="one tenant, 30 % of live, always bad", risks=steady(0.01, 0.01), tenant_share=0.3),
        Scenario(name="the same among 60 conversations", risks=steady(0.01, 0.01), tenant_share=0.3, keys=60),
        Scenario(name="1 % -> 5 % among 60 conversations", risks=steady(0.01, 0.05), keys=60),
        Scenario(name="outage among 60 conversations", risks=outage, keys=60),
    )
}

SHARES = tuple(
    Scenario(
        name=f"{100 * share:g} %: 1 % -> {100 * risk:g} %",
        risks=steady(0.01, risk),
        share=share,
        live_requests=int(200_000 * share),
    )
    for share in (0.01, 0.1, 0.5, 0.95, 0.99)
    for risk in (0.01, 0.05, 0.2)
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{'truth (control -> live)':40} {'rolled back':>12} {'median live requests':>21}")
    for scenario in (*SCENARIOS.values(), *SHARES):
        began = time.perf_counter()
        result = simulate(scenario, trials=arguments.trials, seed=arguments.seed)
        median = "-" if result.median is None else f"{result.median:,.0f}"
        took = time.perf_counter() - began
        print(f"{scenario.name:40} {result.found_share:>11.0%} {median:>21}   {took:5.1f} s", flush=True)


if __name__ == "__main__":
    main()
