"""What tests share: a gateway on a free port, a scripted upstream, and guards against what must not be left behind.

Three tiers: `pytest -m "not cost and not system" --near` for what is near a change, `pytest -m "not system"` for
everything within this process, and `pytest` for all there is. Tests of a whole folder run in several processes, those
of named files in one, unless `-n` says otherwise.
"""

import os
import sys

# Also where the environment says not to: else each process rewrites every test anew, for seconds, and each program that
# a test starts compiles the gateway.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import asyncio
import gc
import importlib
import inspect
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import cache, partial, wraps
from importlib.metadata import EntryPoints, entry_points
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import pytest
import structlog
from attrs import frozen
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, is_hypothesis_test, settings

from gateway.wire import conversations, known_texts
from strategies import factory
from tests.support import near, reading
from tests.support.client import open_connection
from tests.support.faulty_upstream import FaultyUpstream
from tests.support.golden import labels_of, own_labels
from tests.support.processes import adopt_orphans, children, end

if TYPE_CHECKING:
    from gateway.app import Gateway

    Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
    StartGateway = Callable[..., Awaitable[Gateway]]


settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")  # both look at the clock on the wall, which goes on while others have the processor

NEAR_CUTS, FEW_CUTS = 40, 20
"""At how many places answers are cut in two, in place of some four hundred."""
FEW_EXAMPLES = 25
"""How many examples Hypothesis makes, at most."""
EXAMPLES = 60
"""How many it makes by default, at most: each run makes others, and `--many` makes ten times what a test asks for."""
GC_THRESHOLDS = (20_000, 20, 20)
"""How often the collector looks: by default every long value has it go through all that earlier tests have left."""
TOGETHER = 10
"""So many cases of a test run as one, at most."""
EVERYWHERE = {"event_loop_policy", "nobody_changes_what_all_requests_share", "no_processes_left", "request"}
"""The fixtures of every test."""
EVERY_FEW = 3
"""Of so many golden cases one goes through untouched."""
SAME_LINES_AGAIN = frozenset(
    {
        *("test_lateness.py", "test_left_out.py", "test_pattern_costs.py"),
        *("test_what_stands_behind_the_closer_is_the_answer", "test_calls_of_an_answer_without_a_closer_count"),
        "test_a_closer_that_is_mentioned_or_has_an_opener_makes_no_drafts",
        "test_whatever_the_thought_is_full_of_it_makes_no_call",
        "test_the_answer_is_read_whatever_the_thought_is_full_of",
        "test_a_call_that_meets_the_closer_counts_where_nothing_follows",
        *("test_damaged_markup_changes_no_value", "test_every_dialect_is_damaged"),
        "test_damaged_markup_changes_no_value_in_a_hundred_thousand",
        "test_random_answers_keep_every_promise",
        *("test_no_call_is_given_twice_and_streamed_is_whole", "test_calls_that_differ_are_all_given"),
        "test_structured_calls_alone_go_through_as_they_came",
        *("test_reading_never_depends_on_the_cuts_and_loses_nothing", "test_any_text_at_all_comes_back"),
        *("test_reading_character_by_character_is_reading_whole", "test_what_was_said_stands_whatever_comes_next"),
        *("test_every_call_that_starts_ends_or_breaks_once", "test_every_example_of_the_table_survives_every_cut"),
        *("test_what_is_written_with_tokens_is_read_back", "test_plain_arguments_can_always_be_written"),
        *("test_the_example_is_a_call", "test_openers_without_end_do_no_harm", "test_markup_in_inline_code_is_text"),
    }
)
"""Files and tests: they and those of cost go over lines that others reach too, so often that counting them doubles
their time."""
UNCOUNTED = frozenset(
    {
        *("test_answers.py", "test_quiet_reading_is_loud_reading"),
        *("test_an_answer_goes_through_as_it_came", "test_every_other_mixture_of_line_ends_goes_through"),
        *(
            "test_what_is_damaged_is_refused_in_parts_as_in_one_go",
            "test_what_is_read_in_parts_is_what_is_read_in_one_go",
        ),
        "test_text_in_any_dialect_means_the_tool_behind_its_namespaces",
        *("test_an_outage_of_both_arms_is_no_fault_of_the_live_one", "test_one_failing_tenant_rolls_nothing_back"),
        *("test_every_kind_says_the_same", "test_an_answer_is_the_same_through_every_kind"),
        *("test_answers_of_all_kinds_go_through_byte_for_byte", "test_a_stream_with_such_a_value_ends_as_streams_do"),
        *("test_no_beginning_of_a_written_call_is_another_call", "test_no_beginning_of_a_call_is_another_call"),
        *("test_several_calls_are_read_back_in_order", "test_a_call_is_read_back_as_it_was"),
        *("test_hostile_text_costs_linear_work", "test_what_was_read_in_vain_is_let_go_in_turns"),
        *("test_every_call_arrives_as_it_was_meant_or_is_left_alone_and_counted", "test_no_call_and_no_change"),
        *("test_every_call_that_can_be_written_is_read_back", "test_the_projects_own_answers_are_read_as_labelled"),
        "test_a_tool_whose_name_is_markup_is_called_as_its_prompt_shows",
        "test_a_call_that_is_open_ends_before_what_ends_the_turn_for_the_engine",
    }
)
"""Files and tests that go over such lines, too, and are left out nowhere."""
EVERY_FEW_AGAIN = 4
"""Of so many tests of these files one goes through where few are asked for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--near", action="store_true", help="the tests near what changed, with fewer cuts and examples")
    parser.addoption("--few", action="store_true", help="fewer tests of a kind, cuts and examples")
    parser.addoption(
        "--many", action="store_true", help="ten times as many examples as each test asks for, and each cut by itself"
    )
    parser.addoption("--answers", type=Path, metavar="PATH", help="labelled answers in place of the golden cases")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes more than there are cores, as tests of programs wait, one more without these; none for files that
    were named.
    """
    named = [argument.partition("::")[0] for argument in config.args]
    if all(Path(name).is_file() for name in named):
        return 0
    waiting = 1 if "not system" in config.option.markexpr else 2
    return len(os.sched_getaffinity(0)) + waiting


@cache
def _installed(group: str, _places: tuple[str, ...]) -> EntryPoints:
    return entry_points(group=group)


def _entry_points(*, group: str) -> EntryPoints:
    """What is installed; each gateway asks, and to look through a hundred packages takes half of its start."""
    return _installed(group, tuple(sys.path))


def pytest_configure(config: pytest.Config) -> None:
    adopt_orphans()
    setattr(factory, "entry_points", _entry_points)  # noqa: B010 - a name that it does not export
    if config.getoption("--near") or config.getoption("--few"):
        reading.CUTS = NEAR_CUTS if config.getoption("--near") else FEW_CUTS
        reading.AT_RANDOM = 1
    if config.getoption("--many"):
        reading.APART = sys.maxsize
    if config.getoption("--near"):
        config.pluginmanager.register(near.Near(config), "near")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Have the lines of a process of xdist's counted by the plugin alone, which begins to after this.

    What counts those of subprocesses has begun here, too, and so has what the plugin begins in the first process; they
    would go on where it is told to pause: https://coverage.readthedocs.io/en/latest/subprocess.html
    """
    if hasattr(session.config, "workerinput") and "coverage" in sys.modules:
        while begun := sys.modules["coverage"].Coverage.current():
            begun.stop()
            begun.save()


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Let each process begin to import tests at another place: it then finds what the others have rewritten by then."""
    if not isinstance(collector, pytest.Session):
        return
    gc.disable()  # until all tests are known: what is made by then stays, and was looked through a dozen times
    config = collector.config
    told: dict[str, Any] | None = getattr(config, "workerinput", None)
    if told is None:
        return
    folders = [path for path in map(Path, config.args) if path.is_dir()]
    paths = sorted({path for folder in folders for path in folder.absolute().rglob("test_*.py")})
    ignored = config.hook.pytest_ignore_collect
    names = [path.relative_to(near.ROOT) for path in paths if not ignored(collection_path=path, config=config)]
    first = int(told["workerid"].removeprefix("gw")) * len(names) // told["workercount"]
    for name in (*names[first:], *names[:first]):
        with suppress(Exception, pytest.skip.Exception):  # told where it is collected
            importlib.import_module(".".join(name.with_suffix("").parts))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark the tests of programs, and let two processes begin with them; leave out what takes minutes; gather cases."""
    if "long" not in config.option.markexpr:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    if config.getoption("--few"):
        again = [item for item in items if _goes_again(item)]
        left = set(again) - set(again[::EVERY_FEW_AGAIN])
        config.hook.pytest_deselected(items=[*left])
        items[:] = [item for item in items if item not in left]
    for item in items:
        if item.path.is_relative_to(near.ROOT / "tests" / "system"):
            item.add_marker("system")
        if item.get_closest_marker("cost") or _goes_again(item) or _is_of(item, UNCOUNTED):
            item.add_marker("no_cover")
        _give_examples(item, config)
    yield
    if hasattr(config, "workerinput"):
        items[:] = [each for _, cases in groupby(items, _test_of) for each in _gathered([*cases])]
    programs = [item for item in items if item.get_closest_marker("system")]
    items[:] = [item for item in items if not item.get_closest_marker("system")]
    # Each process is given a part of the list at first, all of one length: the second one's begins here.
    second = len(items + programs) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) - len(programs[::2])
    items[max(0, second) : max(0, second)] = programs[1::2]
    items[:0] = programs[::2]


def _test_of(item: pytest.Item) -> object:
    """What is one and the same for all cases of a test that asks for nothing but what tells them apart."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec") or not inspect.isfunction(item.obj):
        return item
    if inspect.iscoroutinefunction(item.obj) or is_hypothesis_test(item.obj):
        return item
    told: set[str] = set()
    for mark in item.iter_markers():
        if mark.name == "no_cover":
            continue
        if mark.name != "parametrize" or mark.kwargs.get("indirect"):
            return item
        names = mark.args[0]
        told.update(map(str.strip, names.split(",")) if isinstance(names, str) else names)
    return item.obj if told == item.callspec.params.keys() == {*item.fixturenames} - EVERYWHERE else item


def _gathered(cases: list[pytest.Item]) -> Iterator[pytest.Item]:
    """By tens, as most of them take less time than pytest and its processes take for a test of its own.

    Where tests run in one process, as those of named files do, each case is one.
    """
    if len(cases) == 1:
        yield cases[0]
        return
    for part in (cases[at : at + TOGETHER] for at in range(0, len(cases), TOGETHER)):
        first: Any = part[0]
        gathered = pytest.Function.from_parent(
            first.parent,
            name=f"{first.originalname}[{len(part)} from {first.callspec.id}]",
            callobj=_of_all({case.callspec.id: case for case in part}),  # type: ignore[attr-defined]
            originalname=first.originalname,
        )
        if first.get_closest_marker("no_cover"):
            gathered.add_marker("no_cover")
        yield gathered


def _of_all(cases: dict[str, Any]) -> Callable[[], None]:
    function = next(iter(cases.values())).obj

    @wraps(function)
    def of_all() -> None:
        reading.run_all("the case", {case: partial(_run, item) for case, item in cases.items()})

    of_all.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
    return of_all


def _run(case: Any) -> None:
    try:
        case.obj(**case.callspec.params)
    finally:
        _forget()


def _goes_again(item: pytest.Item) -> bool:
    return _is_of(item, SAME_LINES_AGAIN)


def _is_of(item: pytest.Item, names: frozenset[str]) -> bool:
    return item.path.name in names or getattr(item, "originalname", "") in names


def _give_examples(item: pytest.Item, config: pytest.Config) -> None:
    function: Any = getattr(item, "obj", None)
    function = getattr(function, "__func__", function)
    if not is_hypothesis_test(function):
        return
    owner, name = function, "_hypothesis_internal_use_settings"
    if not hasattr(owner, name):  # a machine of states has its settings on its class
        owner, name = getattr(item, "cls", None), "settings"
    given = getattr(owner, name) or settings()
    if config.getoption("--many"):
        number = 10 * given.max_examples
    else:
        is_few = config.getoption("--near") or config.getoption("--few")
        number = min(FEW_EXAMPLES if is_few else EXAMPLES, given.max_examples)
    setattr(owner, name, settings(given, max_examples=number))


@pytest.fixture(scope="session")
def answers(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Labelled answers to let through: every few of the golden cases, or all of those that were asked for."""
    path = request.config.getoption("--answers")
    return labels_of(path) if path else own_labels(EVERY_FEW)


@pytest.fixture(autouse=True)
def no_processes_left() -> Iterator[None]:
    """Ends the processes that a test leaves behind, and whatever those had started."""
    before = children()
    yield
    end(children() - before)


@pytest.fixture(autouse=True)
def nobody_changes_what_all_requests_share() -> Iterator[None]:
    """What is remembered of tools still says what was written, and is forgotten from one test to the next."""
    yield
    _forget()


def _forget() -> None:
    for known in list(known_texts._by_sample.values()):
        assert msgspec.json.decode(known.text) == known.value, "a value that all requests share was changed"
    for each in conversations._conversations:
        written = msgspec.json.decode(each.raw[each.start : each.start + each.ends[-1]] + b"]")
        assert written == each.items, "items that all requests share were changed"
    known_texts.forget_all()
    conversations.forget_conversations()


def _sockets() -> int:
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
        except OSError:
            continue
    return count


@pytest.fixture
async def no_leaks() -> AsyncIterator[None]:
    """Fails the test that leaves a task or a socket behind."""
    before = asyncio.all_tasks()
    sockets = _sockets()
    yield
    for _ in range(50):
        left = {task for task in asyncio.all_tasks() - before if not task.done()}
        left.discard(asyncio.current_task())
        if not left and _sockets() <= sockets:
            return
        await asyncio.sleep(0.01)
    assert not left, f"tasks left over: {left}"
    assert _sockets() <= sockets, "sockets left over"


@pytest.fixture
async def upstream(no_leaks: None) -> AsyncIterator[FaultyUpstream]:
    """A model server that answers as the test says."""
    server = await FaultyUpstream().start()
    yield server
    await server.close()


ON_THE_LOOP = (
    *("gateway.answer", "gateway.chat", "gateway.front", "gateway.pages", "gateway.request", "gateway.rollout"),
    *("gateway.traffic", "gateway.upstream", "gateway.wire"),
)
"""The rooms whose code runs while others wait."""


@frozen
class Log:
    """The file that the gateway's log goes to; it is written by a thread of its own."""

    path: Path

    async def until(self, wanted: str) -> str:
        """All that is written, once `wanted` is in it."""
        async with asyncio.timeout(5):
            while wanted not in (written := self.path.read_text()):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.01)
        return written

    async def record(self, event: str) -> dict[str, Any]:
        """The fields of the last such event, once there is one."""
        written = await self.until(f'"event":"{event}"')
        found: dict[str, Any] = [
            fields for fields in map(json.loads, written.splitlines()) if fields["event"] == event
        ][-1]
        return found


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """The gateway's log, through the pipeline that serves in earnest."""
    from gateway.telemetry.logs import configure_logging

    path = tmp_path / "log.jsonl"
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    writer = configure_logging(level="debug", fd=fd)
    yield Log(path)
    writer.close()
    os.close(fd)
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level


@pytest.fixture
async def gateway(no_leaks: None, log: Log) -> "AsyncIterator[StartGateway]":
    """Starts gateways: `await gateway(upstream.url, GATEWAY_KEEPALIVE_S="0.1")`."""
    from gateway.app import build  # here: most tests need no server
    from gateway.config.load import load

    started: list[Gateway] = []

    defaults = {"GATEWAY_PORT": "0", "METRICS_PORT": "0", "STORE_URL": "memory://"}

    async def start(upstream_url: str | None, **environ: str) -> "Gateway":
        named = {} if upstream_url is None else {"UPSTREAM_URL": upstream_url}
        running = await build(load({**defaults, **named, **environ}))
        started.append(running)
        return running

    # A call from the gateway's own code that blocks the event loop fails the test.
    with blockbuster_ctx(list(ON_THE_LOOP)) as blockbuster:
        blockbuster.functions["os.stat"].can_block_in("linecache.py", {"checkcache", "updatecache"})
        yield start
        for running in started:
            await running.close()


@pytest.fixture
async def client(no_leaks: None) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client that gives up in good time."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield session


@pytest.fixture
async def connect(no_leaks: None) -> AsyncIterator[Callable[[str], Awaitable["Streams"]]]:
    """Opens raw connections: `reader, writer = await connect(running.url)`."""
    opened: list[asyncio.StreamWriter] = []

    async def connected(url: str) -> "Streams":
        reader, writer = await open_connection(url)
        opened.append(writer)
        return reader, writer

    yield connected
    for writer in opened:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


class _Unsent:
    """What aiohttp asks of the writer of a request that was never sent."""

    output_size = 0


class MockedResponse(aiohttp.ClientResponse):
    """A response that aioresponses can make: aiohttp 3.14 asks for a writer that the mocks do not pass."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("stream_writer", _Unsent())
        super().__init__(*args, **kwargs)


@pytest.fixture
def response_class() -> type[aiohttp.ClientResponse]:
    """For the `response_class=` of every aioresponses mock, until aioresponses mends it (issue 289)."""
    return MockedResponse
