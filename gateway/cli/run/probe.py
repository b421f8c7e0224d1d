"""`toolgate probe`: what a model server can, asked of it, and the rule that fits it best.

The server is asked as an agent would ask it, through a gateway of its own inside this process: once with everything
switched off, for what the server can by itself, and once under each rule that may fit, so that what the card says of a
rule is what the gateway does with it.
"""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

import aiohttp
import click
import structlog
from attrs import asdict, define, evolve, field, frozen

from gateway.app import Gateway, build
from gateway.background.lesson_sync import SharedLessons
from gateway.cli.options import json_option
from gateway.cli.run.probe_tasks import ABILITIES, OTHERS, UNDER_RULE, Answer, Reply, Task
from gateway.cli.store import effective_settings, on_store
from gateway.config.load import Settings, load
from gateway.core.ports import Store
from gateway.core.rules import Rule
from gateway.process.exits import EXIT_FINDINGS, EXIT_UNREACHABLE
from gateway.report.facts.intervals import rate
from gateway.request.servers import Upstream, upstreams_of
from gateway.traffic.lesson_rules import ABLE, PROBED, WEEK_S, Terms
from gateway.upstream.look import look_at
from gateway.wire.chat_reshape import stream_to_body
from strategies.asking.renderers import RENDERERS, own_dialect
from strategies.dialects.rows import TABLE

__all__ = ["Ability", "Card", "Probe", "dialects_in", "probe"]

SCHEMA_VERSION = 1
_SAMPLES = 3
_AT_ONCE = 4
_ASK_S = 120.0
_MOST_DIALECTS = 4
_LOOK_S = 5.0
_PLAIN = "generic_xml"
_USUAL = ["hermes", "qwen3_coder", "json_fence"]
"""What a model of no known family may have been taught."""

# What of a chat template says in which form its model was taught to call; the first that is there decides.
_TEMPLATES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<|channel|>", "commentary"), "harmony"),
    (("<｜DSML｜",), "dsml"),
    (("<｜tool▁calls▁begin｜>",), "ds_v3"),
    (("<|tool_calls_section_begin|>",), "kimi_k2"),
    (("<minimax:tool_call>",), "minimax_m2"),
    (("<arg_key>",), "glm"),
    (("<seed:tool_call>",), "seed_oss"),
    (("<tool_call>", "<function="), "qwen3_coder"),
    (("<|tool_call_start|>",), "lfm2"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<tool_call>",), "hermes"),
    (("<|python_tag|>",), "llama3_json"),
)


@frozen(kw_only=True)
class Ability:
    """What a server can, so often of so many times, with a 95 % interval."""

    name: str
    tries: int
    passed: int
    rate: float | None
    low: float
    high: float
    note: str = ""


@frozen(kw_only=True)
class Card:
    """All that a probe has found."""

    schema_version: int
    upstream: str
    model: str
    abilities: tuple[Ability, ...]
    rule: str
    toml: str
    why: str


@define
class Probe:
    """One model at one server, asked through a gateway of this process."""

    gateway: Gateway
    session: aiohttp.ClientSession
    upstream: Upstream
    model: str
    samples: int
    say: Callable[[str], None]
    template: str = ""
    _arm: str = field(init=False, default="off")
    """Of the requests: `off` for what the server can by itself."""
    _slots: asyncio.Semaphore = field(init=False, factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def card(self) -> Card:
        """Everything that is asked, and what it comes to."""
        abilities = [await self._ability(task) for task in ABILITIES]
        ruled: dict[str, list[list[str]]] = {}
        for strategy in ("recovery", "native", *(f"xml_prompt:{name}" for name in self._dialects())):
            self._follow(_rule(strategy))
            ruled[strategy] = [await self._tried(task) for task in UNDER_RULE]
            self.say(_line(_told(f"rule {strategy}", [each for faults in ruled[strategy] for each in faults])))
            if strategy.startswith("xml_prompt"):
                abilities.append(_told(f"prompted:{strategy.partition(':')[2]}", ruled[strategy][0]))
        self._arm = "off"
        abilities += [await self._ability(task) for task in OTHERS]
        strategy, why = _best(ruled, abilities)
        rule = f"{_glob(self.model)}={strategy}" if strategy else ""
        table = f"[[models]]\nmatch = {json.dumps(_glob(self.model))}\nstrategy = {json.dumps(strategy)}\n"
        return Card(
            schema_version=SCHEMA_VERSION,
            upstream=self.upstream.name,
            model=self.model,
            abilities=tuple(abilities),
            rule=rule,
            toml=table if strategy else "",
            why=why,
        )

    def _dialects(self) -> list[str]:
        """What the model may be prompted in: what its template says beats what its name does."""
        name = self.model.lower().rsplit("/", 1)[-1]
        written = [row for row in TABLE if row.id in RENDERERS]
        family = [row.id for row in written if any(fnmatchcase(name, glob) for glob in row.models)]
        found = [*dialects_in(self.template), *filter(None, [own_dialect(self.model)]), *family]
        return list(dict.fromkeys([*(found or _USUAL)[: _MOST_DIALECTS - 1], _PLAIN]))

    def _follow(self, rule: Rule) -> None:
        """From now on ask under this rule."""
        self._arm = "live"
        self.gateway.reload(evolve(self.gateway.settings, strategy_rules=(rule,)))

    async def _ability(self, task: Task) -> Ability:
        found = _told(task.name, await self._tried(task))
        self.say(_line(found))
        return found

    async def _tried(self, task: Task) -> list[str]:
        """What was wrong with each of the replies."""
        return list(await asyncio.gather(*(self._once(task) for _ in range(self.samples))))

    async def _once(self, task: Task) -> str:
        body = {"model": self.model, **task.body, "stream": task.streams}
        async with self._slots:
            try:
                return task.judge(await self._asked(body))
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                return type(error).__name__

    async def _asked(self, body: Mapping[str, Any]) -> Reply:
        headers = {_ARM_HEADER: self._arm}
        async with self.session.post(f"{self.gateway.url}/v1/chat/completions", json=body, headers=headers) as response:
            raw = await response.read()
            if response.content_type == "text/event-stream":
                raw = stream_to_body(raw) if raw.strip() else b"{}"
            answer = json.loads(raw)
            return Reply(response.status, answer if isinstance(answer, dict) else {}, body)


def dialects_in(template: str) -> list[str]:
    """The dialects that a chat template teaches."""
    return [name for marks, name in _TEMPLATES if name in RENDERERS and all(mark in template for mark in marks)][:1]


def _rule(strategy: str) -> Rule:
    name, _, dialect = strategy.partition(":")
    return Rule(pattern="*", strategy=name, dialect=dialect or None)


def _glob(model: str) -> str:
    """A name in which nothing stands for anything else."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in model)


def _told(name: str, faults: Sequence[str]) -> Ability:
    passed = sum(not fault for fault in faults)
    found = rate(passed, len(faults))
    wrong = [fault for fault in faults if fault]
    return Ability(
        name=name,
        tries=len(faults),
        passed=passed,
        rate=found.share,
        low=found.low,
        high=found.high,
        note=max(set(wrong), key=wrong.count) if wrong else "",
    )


def _line(ability: Ability) -> str:
    share = f"{ability.passed} of {ability.tries}"
    interval = f"{ability.low * 100:.0f}-{ability.high * 100:.0f} %"
    return f"{ability.name:<24} {share:>10}   {interval:>9}   {ability.note}".rstrip()


def _best(ruled: Mapping[str, Sequence[Sequence[str]]], abilities: Sequence[Ability]) -> tuple[str, str]:
    """The strategy under which most came right, and why; of equals the one that asks least of the model."""
    passed = {name: sum(not fault for faults in tasks for fault in faults) for name, tasks in ruled.items()}
    calls = {name: sum(not fault for faults in tasks[:3] for fault in faults) for name, tasks in ruled.items()}
    able = [name for name in ruled if calls[name]]
    if not able:
        notes = {fault for tasks in ruled.values() for faults in tasks[:3] for fault in faults if fault}
        return "", f"no way of asking gave a single right call ({'; '.join(sorted(notes)[:3])})"
    best = max(able, key=lambda name: passed[name])
    total = sum(len(faults) for faults in ruled[best])
    said = [f"under {best} {passed[best]} of {total} came right"]
    said += [f"{passed[name]} under {name}" for name in ruled if name != best]
    why = f"{said[0]}, {', '.join(said[1:])}" if said[1:] else said[0]
    return best, "; ".join([why, *_reasons(best, passed, ruled, abilities)])


def _reasons(
    best: str,
    passed: Mapping[str, int],
    ruled: Mapping[str, Sequence[Sequence[str]]],
    abilities: Sequence[Ability],
) -> Iterator[str]:
    """What went wrong under the others, in the server's own faults."""
    if best == "recovery" and passed["native"] == passed["recovery"]:
        yield "its calls come natively, and what leaks into the text is read as well"
    elif best == "recovery":
        yield "it writes calls as text that native tools would lose"
    names = [task.name for task in UNDER_RULE]
    for other in ruled:
        if passed[other] >= passed[best]:
            continue
        wrong = [(names[at], next(filter(None, faults), "")) for at, faults in enumerate(ruled[other])]
        told = [f"{name}: {fault}" for name, fault in wrong if fault]
        if told:
            yield f"{other} fails at {told[0]}"
    cut = next((each for each in abilities if each.name == "long_prompt" and each.passed < each.tries), None)
    if cut is not None:
        yield f"long prompts do not arrive whole ({cut.note})"


# --- what a server says of itself -------------------------------------------------------------------------------------


async def _said(session: aiohttp.ClientSession, upstream: Upstream, model: str) -> tuple[str, list[str]]:
    """The chat template, where it is offered, and in words what the server says it is."""
    if upstream.row.is_translated:
        return "", []
    root = upstream.base_url.origin()
    headers = dict(upstream.kind.credentials(upstream.api_key, upstream.cookies))
    asks: dict[str, Awaitable[Answer]] = {
        "props": _json(session, "GET", str(root / "props"), headers),
        "show": _json(session, "POST", str(root / "api" / "show"), headers, {"model": model}),
        "version": _json(session, "GET", str(root / "version"), headers),
        "models": _json(session, "GET", str(upstream.base_url / "models"), headers),
    }
    found = dict(zip(asks, await asyncio.gather(*asks.values()), strict=True))
    template = next((each for each in (found["props"].get("chat_template"), found["show"].get("template")) if each), "")
    said = []
    if found["props"].get("chat_template"):
        build_info = found["props"].get("build_info")
        said.append(f"llama.cpp{f' {build_info}' if isinstance(build_info, str) else ''}: /props has a chat template")
    if isinstance(found["show"].get("capabilities"), list):
        said.append(f"Ollama: the model can {', '.join(map(str, found['show']['capabilities'][:8]))}")
    if isinstance(found["version"].get("version"), str):
        said.append(f"version {found['version']['version'][:40]}")
    data = found["models"].get("data")
    for entry in data if isinstance(data, list) else ():
        if isinstance(entry, dict) and entry.get("id") == model and isinstance(entry.get("max_model_len"), int):
            said.append(f"vLLM: a context of {entry['max_model_len']} tokens")
    return template if isinstance(template, str) else "", said


async def _json(
    session: aiohttp.ClientSession, method: str, url: str, headers: Mapping[str, str], body: Any = None
) -> Answer:
    """What is there, or nothing: most servers have none of these."""
    with suppress(aiohttp.ClientError, TimeoutError, ValueError, OSError):
        timeout = aiohttp.ClientTimeout(total=_LOOK_S)
        # A key is for the server that it was given for, and not for where that one points.
        async with session.request(
            method, url, headers=headers, json=body, timeout=timeout, allow_redirects=False
        ) as response:
            if response.status == 200:
                found = json.loads(await response.read())
                return found if isinstance(found, dict) else {}
    return {}


# --- the command ------------------------------------------------------------------------------------------------------

_ARM_HEADER = "X-Toolgate-Probe"
_OWN = {
    "TRANSFORM_MODE": "full",
    "CANARY_FORCE_HEADER": _ARM_HEADER,
    "CANARY_HOLDBACK_PERCENT": "0",
    "TRUSTED_PROXIES": "127.0.0.0/8",
    "GATEWAY_HOST": "127.0.0.1",
    "GATEWAY_PORT": "0",
    "METRICS_PORT": "0",
    "STORE_URL": "memory://",
    "GATEWAY_WORKERS": "1",
    "REPAIR_ATTEMPTS": "0",
    "RESCUE": "false",
    "NATIVE_FALLBACK": "false",
    "AUDIT_BODIES": "none",
}
"""What the gateway of the probe has of its own: it asks once, and learns nothing."""


_OBEYED = ("named", "strict")
"""What a second question makes use of where the server is known to obey it."""


class Unreachable(click.ClickException):
    """The model server cannot be asked."""

    exit_code = EXIT_UNREACHABLE


@click.command(short_help="Ask a model server what it can, and which rule fits it.")
@click.argument("model", required=False)
@click.option("--upstream", "name", metavar="NAME", help="One of the tables [upstreams.NAME]; else the first.")
@click.option("--samples", type=click.IntRange(1, 100), default=_SAMPLES, show_default=True, help="Tries of each.")
@click.option("--apply", "applies", is_flag=True, help="Keep the rule, and what the server obeys, in the store.")
@json_option
@click.pass_context
def probe(
    context: click.Context, model: str | None, name: str | None, samples: int, applies: bool, as_json: bool
) -> None:
    """Ask a model server what it can, and say which rule fits it best.

    Asks for calls natively, streamed, in parallel, required, by name, strictly, behind a long prompt, with a nested
    schema and with a result, and in the prompt in each form of the model's family; then tries every rule that may fit
    with an agent's everyday work, and prints a card: how often each came right, with its interval, the rule, and why.
    What /props, /api/show, /version and /v1/models say is read, too. MODEL may be left out where there is only one.

    `toolgate doctor --probe` asks whether a running gateway takes requests; this asks what a model server can.
    Exits with 0 if calls arrive with the rule, 3 if no way gives calls, 5 if the server cannot be reached.

    \b
    Examples:
      toolgate probe
      toolgate probe qwen3-coder:30b --samples 10
      toolgate probe --upstream local --apply
      toolgate probe llama-3.3-70b --json
    """
    settings = effective_settings()
    card = asyncio.run(_probed(settings, name, model, samples, _progress))
    if as_json:
        click.echo(json.dumps(asdict(card), indent=2))
    else:
        _show(card)
    if card.rule and applies:
        on_store(settings, lambda store: _apply(store, card))
        wins = f"the rule {settings.rule_for(card.model) or 'of an operator'}"
        click.echo(f"kept as a lesson for {WEEK_S / 86_400:.0f} days; {wins} wins over it", err=True)
    context.exit(0 if card.rule else EXIT_FINDINGS)


def _progress(line: str) -> None:
    click.echo(line, err=True)


def _show(card: Card) -> None:
    click.echo(f"{card.model} at {card.upstream}")
    for ability in card.abilities:
        click.echo(f"  {_line(ability)}")
    click.echo()
    if card.rule:
        click.echo(f"STRATEGY_RULES='{card.rule}'")
        click.echo("or, in the file of GATEWAY_CONFIG:")
        click.echo("\n".join(f"  {line}" for line in card.toml.splitlines()))
    else:
        click.echo("no rule fits")
    click.echo(f"why: {card.why}")


async def _apply(store: Store, card: Card) -> None:
    lessons = SharedLessons(store)
    await lessons.sync()
    strategy = card.rule.rpartition("=")[2]
    obeyed = (each.name for each in card.abilities if each.name in _OBEYED and each.passed == each.tries >= ABLE)
    terms = Terms(rule=strategy, seconds=WEEK_S, able=frozenset(obeyed))
    lessons.learn(card.upstream, card.model, PROBED, 0.0, terms)
    await lessons.sync()


async def _probed(
    settings: Settings, name: str | None, model: str | None, samples: int, say: Callable[[str], None]
) -> Card:
    # What the probe's own gateway logs would stand among the lines of the card.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if settings.is_demo:
        raise click.UsageError("no model server is named: set UPSTREAM_URL")
    upstreams = upstreams_of(settings, None)
    if name is not None and name not in upstreams:
        raise click.BadParameter(f"there is {', '.join(upstreams)}", param_hint="--upstream")
    upstream = upstreams[name] if name is not None else next(iter(upstreams.values()))
    look = await look_at(upstream)
    if look.level == "fault" and look.models is None and not await _answers(upstream):
        raise Unreachable(f"{look.message}{f' ({look.advice})' if look.advice else ''}")
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ASK_S)) as session:
        gateway = await build(_own_settings(settings, upstream))
        try:
            asked = model or await _only_model(session, gateway)
            template, said = await _said(session, upstream, asked)
            for line in said:
                say(line)
            found = Probe(gateway, session, upstream, asked, samples, say, template)
            return await found.card()
        finally:
            await gateway.close()


async def _answers(upstream: Upstream) -> bool:
    """Whether anything speaks HTTP there: a server without a list of models can be asked all the same."""
    with suppress(aiohttp.ClientError, TimeoutError, OSError):
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_LOOK_S)) as session,
            session.get(str(upstream.base_url), allow_redirects=False) as response,
        ):
            return response.status not in (401, 403, 502, 503, 504)
    return False


def _own_settings(settings: Settings, upstream: Upstream) -> Settings:
    """The settings of a gateway that has this server alone; what else is set for its models holds there, too."""
    # Nobody but the probe asks its gateway, and the probe has no key.
    given = {key: value for key, value in os.environ.items() if not key.startswith("GATEWAY_API_KEYS")}
    own = load({**given, **_OWN})
    tables = tuple(each for each in settings.routes.upstreams if each.name == upstream.name)
    rules = tuple(evolve(rule, upstream=None, fallback=None, strategy=None) for rule in settings.routes.models)
    routes = evolve(own.routes, upstreams=tables, models=rules)
    return evolve(own, routes=routes, upstream_url=None if tables else settings.upstream_url)


async def _only_model(session: aiohttp.ClientSession, gateway: Gateway) -> str:
    async with session.get(f"{gateway.url}/v1/models") as response:
        found = json.loads(await response.read()) if response.status == 200 else {}
    names = [each.get("id") for each in found.get("data", []) if isinstance(each, dict)]
    if len(names) != 1 or not isinstance(names[0], str):
        shown = ", ".join(map(str, names[:20])) or "it lists none"
        raise click.UsageError(f"name the model: {shown}")
    return names[0]
