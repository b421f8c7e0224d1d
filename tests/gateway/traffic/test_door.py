"""Who is let in, by every form in which a request can say where it comes from and where it goes."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.config.declared.values import host_names, origins
from gateway.core.origins import is_loopback, parse_authority, parse_origin
from gateway.traffic.door import MAX_HEADERS, Door, Knock, Verdict
from tests.support.reading import together

OPEN = Door(has_keys=False)
KEYS = Door(has_keys=True)
LISTS = Door(
    has_keys=False,
    hosts=host_names(
        "gate.example, gate.example:8443, other.example:9000, 10.0.0.5, fd00::1, [fd00::2]:81, xn--bcher-kva.example"
    ),
    origins=origins(
        "https://chat.example, http://localhost:3000, http://[fd00::9]:80, vscode-webview://*, file://*, app://obsidian.md"
    ),
)
KEYS_AND_LISTS = Door(has_keys=True, hosts=LISTS.hosts, origins=LISTS.origins)

Headers = Sequence[tuple[str, str]]


def judged(
    door: Door,
    *headers: tuple[str, str],
    method: str = "GET",
    target: str = "/v1/models",
    has_body: bool = False,
    local: bool = True,
    old: bool = False,
) -> Verdict:
    knock = Knock(method=method, target=target, headers=CIMultiDict(headers), has_body=has_body, is_old=old)
    return door.judge(knock, is_local=local)


def status(*args: object, **options: object) -> int:
    verdict = judged(*args, **options)  # type: ignore[arg-type]
    return 200 if verdict.refusal is None else verdict.refusal.status


LOCAL = [
    "localhost",
    "LOCALHOST",
    "LocalHost:8080",
    "localhost:1",
    "localhost:65535",
    "127.0.0.1",
    "127.0.0.1:8080",
    "127.255.255.254:80",
    "[::1]",
    "[::1]:8080",
    "[0:0:0:0:0:0:0:1]:8080",
]
NOT_LOCAL = [
    "",
    " ",
    "evil.example",
    "evil.example:8080",
    "localhost.",
    "localhost.:8080",
    "localhost.evil.example",
    "evil.localhost",
    "xlocalhost",
    "localhost:",
    "localhost:080",
    "localhost:65536",
    "localhost:999999",
    "localhost:80:80",
    "localhost:-1",
    "localhost:+80",
    "localhost:８０",
    "ｌocalhost",
    "loсalhost",
    "xn--localhost-",
    "localhost, evil.example",
    "localhost evil.example",
    "localhost\tevil",
    "localhost/",
    "localhost/evil",
    "localhost?",
    "localhost#",
    "localhost\\evil.example",
    "evil@localhost",
    "localhost@evil.example",
    "user:pass@localhost:8080",
    "http://localhost",
    "//localhost",
    "local%68ost",
    "local_host",
    "127.0.0.1.",
    "127.0.0.1.evil.example",
    "127.1",
    "127.0.1",
    "127.0.0.01",
    "127.0.0.0x1",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "2130706433",
    "127.0.0.256",
    "127.0.0.1.1",
    "127..0.1",
    "128.0.0.1",
    "0.0.0.0",  # noqa: S104 - compared
    "0",
    "10.0.0.1",
    "::1",
    "::1:8080",
    "[::1",
    "::1]",
    "[::1]x",
    "[::1].evil.example",
    "[::1%lo]",
    "[::1%25lo]",
    "[::]",
    "[::2]",
    "[::ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[127.0.0.1]",
    "[localhost]",
    "[]",
    "[::1]:",
    "*",
    "null",
    "a" * 5000,
]


@pytest.mark.parametrize("host", LOCAL)
def test_a_loopback_name_is_let_in_with_any_port(host: str) -> None:
    assert status(OPEN, ("Host", host)) == 200


@together("host", {repr(host): host for host in NOT_LOCAL})
def test_any_other_name_is_misdirected(host: str) -> None:
    for target in ("/v1/chat/completions", "/", "/healthz", "/readyz", "/metrics", "*"):
        assert status(OPEN, ("Host", host), target=target) == 421
    assert status(KEYS, ("Host", host)) == 200
    assert status(OPEN, ("Host", host), local=False) == 200


@given(st.text(max_size=40) | st.from_regex(r"(?i)[l.o:\[\]ca0-9x%@/*-]{1,24}"))
@example("127.0.0.1:65536")
def test_what_is_let_in_looks_like_a_loopback_name_and_nothing_else(host: str) -> None:
    named = re.fullmatch(r"(?ai)(localhost|127(?:\.\d{1,3}){3}|\[[0:]*:0*1\])(:\d{1,5})?", host)
    if status(OPEN, ("Host", host)) == 200:
        assert named


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Host", "localhost"), ("Host", "localhost")],
        [("Host", "localhost"), ("Host", "evil.example")],
        [("Host", "evil.example"), ("host", "localhost")],
        [("X-Forwarded-Host", "localhost")],
        [("Host", "evil.example"), ("X-Forwarded-Host", "localhost"), ("Forwarded", "host=localhost")],
    ],
)
def test_a_host_that_is_missing_or_there_twice_is_misdirected(headers: Headers) -> None:
    assert status(OPEN, *headers) == 421


def test_an_old_client_need_not_know_the_header_and_no_page_is_behind_it() -> None:
    assert status(OPEN, old=True) == 200
    assert status(OPEN, ("Host", "evil.example"), old=True) == 421
    assert status(OPEN, ("Origin", "http://localhost"), old=True) == 403


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("http://127.0.0.1:1/v1/models", 200),
        ("HTTP://LOCALHOST/v1/models", 200),
        ("http://localhost", 200),
        ("http://evil.example/v1/models", 421),
        ("http://localhost@evil.example/v1/models", 421),
        ("http://evil.example@localhost/v1/models", 421),
        ("http://localhost.evil.example/", 421),
        ("http:///v1/models", 421),
        ("file:///etc/passwd", 421),
        ("evil.example:80", 421),
        ("localhost:80", 200),
        ("v1/models", 421),
        ("", 421),
        ("//evil.example/v1/models", 200),  # a path, whatever it looks like
    ],
)
def test_a_target_with_an_address_must_name_this_server_too(target: str, expected: int) -> None:
    assert status(OPEN, ("Host", "localhost:8080"), target=target) == expected
    assert status(OPEN, ("Host", "evil.example"), target=target) == 421


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("gate.example", 200),
        ("GATE.example", 200),
        ("gate.example:1234", 200),
        ("other.example:9000", 200),
        ("other.example", 421),
        ("other.example:9001", 421),
        ("10.0.0.5:8080", 200),
        ("[fd00::1]:8080", 200),
        ("[FD00:0::1]", 200),
        ("[fd00::2]:81", 200),
        ("[fd00::2]", 421),
        ("xn--bcher-kva.example", 200),
        ("bücher.example", 421),
        ("localhost", 200),
        ("gate.example.", 421),
        ("sub.gate.example", 421),
        ("evil.example", 421),
    ],
)
def test_listed_hosts_widen_the_loopback_names_wherever_it_listens(host: str, expected: int) -> None:
    for local in (True, False):
        assert status(LISTS, ("Host", host), local=local) == expected
        assert status(KEYS_AND_LISTS, ("Host", host), local=local) == 200


SAME = [
    ("http://localhost:8080", "localhost:8080"),
    ("http://LOCALHOST:8080", "localhost:8080"),
    ("http://127.0.0.1:8080", "127.0.0.1:8080"),
    ("http://[::1]:8080", "[::1]:8080"),
    ("http://localhost", "localhost"),
    ("http://localhost:80", "localhost"),
    ("http://localhost", "localhost:80"),
    ("https://localhost", "localhost"),
    ("https://localhost", "localhost:443"),
    ("https://localhost:8080", "localhost:8080"),
]
FOREIGN = [
    ("null", "localhost:8080"),
    ("", "localhost:8080"),
    ("*", "localhost:8080"),
    ("http://localhost:3001", "localhost:8080"),
    ("http://localhost", "localhost:8080"),
    ("https://localhost", "localhost:80"),
    ("http://localhost", "localhost:443"),
    ("http://127.0.0.1:8080", "localhost:8080"),
    ("http://127.0.0.2:8080", "127.0.0.1:8080"),
    ("http://evil.example", "localhost"),
    ("http://evil.example:8080", "localhost:8080"),
    ("http://localhost.:8080", "localhost:8080"),
    ("http://localhost:8080.evil.example", "localhost:8080"),
    ("http://localhost:8080@evil.example", "localhost:8080"),
    ("http://evil.example@localhost:8080", "localhost:8080"),
    ("http://localhost:8080/", "localhost:8080"),
    ("http://localhost:8080/path", "localhost:8080"),
    ("http://localhost:8080?", "localhost:8080"),
    ("http://localhost:8080#x", "localhost:8080"),
    ("http://localhost:8080 http://evil.example", "localhost:8080"),
    ("http://localhost:8080, http://evil.example", "localhost:8080"),
    ("http:localhost:8080", "localhost:8080"),
    ("//localhost:8080", "localhost:8080"),
    ("localhost:8080", "localhost:8080"),
    ("http://localhost:08080", "localhost:8080"),
    ("http://localhost\\:8080", "localhost:8080"),
    ("ftp://localhost:8080", "localhost:8080"),
    ("chrome-extension://abcdefghijklmnop", "localhost:8080"),
    ("chrome-extension://localhost:8080", "localhost:8080"),
    ("vscode-webview://0a1b2c", "localhost:8080"),
    ("file://", "localhost:8080"),
    ("http://localhost:70000", "localhost:8080"),
    ("app://a:70000", "localhost:8080"),
    (f"app://{'a' * 5000}", "localhost:8080"),
    ("http://loсalhost:8080", "localhost:8080"),
]


@pytest.mark.parametrize(("origin", "host"), SAME)
def test_a_page_of_the_gateways_own_address_is_let_in(origin: str, host: str) -> None:
    for local in (True, False):
        assert status(OPEN, ("Host", host), ("Origin", origin), local=local) == 200
        assert status(OPEN, ("Host", host), ("Origin", origin), ("Sec-Fetch-Site", "same-origin"), local=local) == 200


@pytest.mark.parametrize(("origin", "host"), FOREIGN)
@together("target", {target: target for target in ("/v1/chat/completions", "/", "/healthz", "/metrics")})
def test_a_foreign_page_is_refused_wherever_the_gateway_listens(origin: str, host: str, target: str) -> None:
    for local in (True, False):
        for method in ("GET", "POST", "OPTIONS", "DELETE"):
            headers = [("Host", host), ("Origin", origin), ("Access-Control-Request-Method", "POST")]
            verdict = judged(OPEN, *headers, method=method, target=target, local=local)
            assert verdict.refusal is not None
            assert verdict.refusal.status == 403
            assert not any(name.startswith("Access-Control") for name in verdict.headers)
    assert status(KEYS, ("Host", host), ("Origin", origin), target=target) == 200


def test_a_letter_that_only_becomes_one_of_a_listed_name_is_another_letter() -> None:
    """The sign of kelvin is a k in lower case."""
    listed = Door(has_keys=False, hosts=host_names("kite.example"), origins=origins("https://kite.example"))
    for name, let_in in (("KITE.example", 200), ("\N{KELVIN SIGN}ITE.example", 421)):
        assert status(listed, ("Host", name)) == let_in
    for name, let_in in (("KITE.example", 200), ("\N{KELVIN SIGN}ITE.example", 403)):
        assert status(listed, ("Host", "localhost"), ("Origin", f"https://{name}")) == let_in


@pytest.mark.parametrize("origins", [["http://localhost", "http://localhost"], ["https://chat.example", "null"]])
def test_two_origins_are_none_that_is_known(origins: list[str]) -> None:
    headers = [("Host", "localhost"), *(("Origin", origin) for origin in origins)]
    for door in (OPEN, LISTS, KEYS_AND_LISTS):
        assert status(door, *headers) == 403


def test_both_addresses_of_a_request_must_be_those_of_its_page() -> None:
    headers = [("Host", "localhost:8080"), ("Origin", "http://localhost:8080")]
    assert status(OPEN, *headers, target="http://localhost:8080/v1/models") == 200
    assert status(OPEN, *headers, target="http://127.0.0.1:8080/v1/models") == 403


NAVIGATION = (("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document"))


@pytest.mark.parametrize(
    ("site", "origin", "expected"),
    [
        ("cross-site", None, 403),
        ("Cross-Site", None, 403),
        ("same-origin, cross-site", None, 403),
        ("same-site", None, 200),
        ("same-origin", None, 200),
        ("none", None, 200),
        ("cross-site", "http://localhost", 403),
        ("same-site", "http://localhost", 403),
        ("same-origin", "http://localhost", 200),
        ("none", "http://localhost", 200),
        ("same-origin", "http://evil.example", 403),
        ("none", "http://evil.example", 403),
    ],
)
def test_what_the_browser_says_of_the_page_counts(site: str, origin: str | None, expected: int) -> None:
    headers = [("Host", "localhost"), ("Sec-Fetch-Site", site)]
    headers += [("Origin", origin)] if origin is not None else []
    for local in (True, False):
        assert status(OPEN, *headers, local=local) == expected
    assert status(KEYS, *headers) == 200


@pytest.mark.parametrize(
    ("mode", "dest", "expected"),
    [
        ("navigate", "document", 200),
        ("navigate", None, 200),
        (None, None, 200),
        ("navigate", "iframe", 403),
        ("navigate", "embed", 403),
        ("no-cors", "image", 403),
        ("no-cors", "script", 403),
        ("no-cors", "empty", 403),
        ("cors", "empty", 403),
        ("websocket", "empty", 403),
    ],
)
def test_of_another_port_of_this_host_links_are_followed_and_nothing_is_embedded(
    mode: str | None, dest: str | None, expected: int
) -> None:
    """It sends no Origin with these, and the browser calls it the same site."""
    headers = [("Host", "localhost"), ("Sec-Fetch-Site", "same-site")]
    headers += [("Sec-Fetch-Mode", mode)] if mode else []
    headers += [("Sec-Fetch-Dest", dest)] if dest else []
    assert status(OPEN, *headers) == expected
    assert status(KEYS, *headers) == 200
    own = [("Host", "localhost"), ("Sec-Fetch-Site", "same-origin"), *headers[2:]]
    assert status(OPEN, *own) == 200


def test_a_site_that_is_said_twice_is_believed_at_its_worst() -> None:
    headers = [("Host", "localhost"), ("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")]
    assert status(OPEN, *headers) == 403


def test_a_link_to_the_front_page_can_be_followed_and_to_nothing_else() -> None:
    headers = [("Host", "localhost:8080"), ("Sec-Fetch-Site", "cross-site"), *NAVIGATION]
    assert status(OPEN, *headers, target="/") == 200
    assert status(OPEN, *headers, target="/?utm=1") == 200
    assert status(OPEN, *headers, target="/", local=False) == 200
    for target in ("/v1/models", "/healthz", "/metrics", "//", "/x", "/?/../v1/models/../", "http://localhost:8080/"):
        assert status(OPEN, *headers, target=target) == (200 if target.startswith("/?") else 403)
    assert status(OPEN, *headers, target="/", method="POST") == 403
    assert status(OPEN, *headers, ("Origin", "null"), target="/") == 403
    assert status(OPEN, ("Host", "evil.example"), *headers[1:], target="/") == 421
    for mode, dest in (("no-cors", "image"), ("navigate", "iframe"), ("cors", "empty"), ("navigate", "object")):
        framed = [*headers[:2], ("Sec-Fetch-Mode", mode), ("Sec-Fetch-Dest", dest)]
        assert status(OPEN, *framed, target="/") == 403


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("https://chat.example", 200),
        ("https://chat.example:443", 200),
        ("HTTPS://Chat.Example", 200),
        ("http://chat.example", 403),
        ("https://chat.example:8443", 403),
        ("https://chat.example.", 403),
        ("https://chat.example.evil.example", 403),
        ("https://evil.chat.example", 403),
        ("http://localhost:3000", 200),
        ("http://localhost:3001", 403),
        ("http://[fd00::9]", 200),
        ("vscode-webview://0abc-1def", 200),
        ("vscode-webview://", 200),
        ("vscode-webview://a/b", 403),
        ("vscode-webview://a@b", 403),
        ("vscode-webviewx://a", 403),
        ("file://", 200),
        ("app://obsidian.md", 200),
        ("app://evil", 403),
        ("null", 403),
    ],
)
def test_listed_origins_are_let_in_and_read_the_answer(origin: str, expected: int) -> None:
    headers = [("Host", "localhost:8080"), ("Origin", origin), ("Sec-Fetch-Site", "cross-site")]
    for door in (LISTS, KEYS_AND_LISTS):
        for local in (True, False):
            verdict = judged(door, *headers, local=local)
            assert (200 if verdict.refusal is None else verdict.refusal.status) == expected
            assert verdict.headers["Vary"] == "Origin"
            assert verdict.headers.get("Access-Control-Allow-Origin") == (origin if expected == 200 else None)
            assert not verdict.is_preflight


def test_with_keys_and_a_list_only_the_list_counts() -> None:
    same = [("Host", "localhost"), ("Origin", "http://localhost")]
    assert status(LISTS, *same) == 200
    assert status(KEYS_AND_LISTS, *same) == 403
    assert status(KEYS_AND_LISTS, ("Host", "evil.example")) == 200
    assert status(KEYS_AND_LISTS, ("Host", "localhost"), ("Sec-Fetch-Site", "cross-site")) == 200


def test_without_a_list_no_answer_has_a_word_for_browsers() -> None:
    for door in (OPEN, KEYS):
        for method in ("GET", "OPTIONS"):
            headers = [("Host", "localhost"), ("Origin", "http://localhost"), ("Access-Control-Request-Method", "POST")]
            verdict = judged(door, *headers, method=method)
            assert (verdict.refusal, verdict.headers, verdict.is_preflight) == (None, {}, False)


def test_a_preflight_of_a_listed_origin_is_given_what_sdks_send() -> None:
    wanted = "authorization,content-type,x-stainless-arch, X-Stainless-Retry-Count,bad name,x(y),,x\ty"
    headers = [
        ("Host", "localhost:8080"),
        ("Origin", "https://chat.example"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", wanted),
        ("Access-Control-Request-Private-Network", "true"),
    ]
    for door in (LISTS, KEYS_AND_LISTS):
        verdict = judged(door, *headers, method="OPTIONS")
        assert verdict.is_preflight
        assert verdict.headers["Access-Control-Allow-Origin"] == "https://chat.example"
        assert verdict.headers["Access-Control-Allow-Headers"] == (
            "authorization, content-type, x-stainless-arch, x-stainless-retry-count"
        )
        assert "POST" in verdict.headers["Access-Control-Allow-Methods"]
        assert verdict.headers["Access-Control-Allow-Private-Network"] == "true"
        assert set(verdict.headers["Vary"].split(", ")) > {"Origin", "Access-Control-Request-Headers"}
        assert "Access-Control-Allow-Credentials" not in verdict.headers
    assert judged(LISTS, ("Host", "evil.example"), *headers[1:], method="OPTIONS").refusal is not None
    many = [*headers[:3], ("Access-Control-Request-Headers", ",".join(f"x-{number}" for number in range(5000)))]
    assert judged(LISTS, *many, method="OPTIONS").headers["Access-Control-Allow-Headers"].count(",") == MAX_HEADERS - 1
    for method in ("POST", "GET"):
        assert not judged(LISTS, *headers, method=method).is_preflight
    assert not judged(LISTS, *headers[:2], method="OPTIONS").is_preflight


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["application/json"], 200),
        (["Application/JSON ; charset=utf-8"], 200),
        (["application/vnd.api+json"], 200),
        (["text/json"], 200),
        ([], 415),
        ([""], 415),
        (["text/plain"], 415),
        (["text/plain;charset=UTF-8"], 415),
        (["text/plain; application/json"], 415),
        (["text/plain, application/json"], 415),
        (["application/json, text/plain"], 415),
        (["application/json", "text/plain"], 415),
        (["application/x-www-form-urlencoded"], 415),
        (["multipart/form-data; boundary=application/json"], 415),
        (["application/jsonx"], 415),
        (["json"], 415),
        (["+json"], 415),
    ],
)
def test_a_page_must_declare_its_body(types: list[str], expected: int) -> None:
    headers = [("Host", "localhost"), *(("Content-Type", each) for each in types)]
    for door, origin in (
        (OPEN, "http://localhost"),
        (LISTS, "https://chat.example"),
        (KEYS, "http://evil.example"),
        (KEYS_AND_LISTS, "https://chat.example"),
    ):
        page = [*headers, ("Origin", origin)]
        assert status(door, *page, method="POST", has_body=True) == expected
        assert status(door, *page, method="POST", has_body=False) == 200
    for door in (OPEN, LISTS, KEYS, KEYS_AND_LISTS):
        assert status(door, *headers, method="POST", has_body=True) == 200


@pytest.mark.parametrize("door", [OPEN, LISTS, KEYS, KEYS_AND_LISTS])
@pytest.mark.parametrize("local", [True, False])
def test_every_refusal_names_the_setting_that_lets_in(door: Door, local: bool) -> None:
    misdirected = judged(door, ("Host", "evil.example"), local=local).refusal
    foreign = judged(door, ("Host", "localhost"), ("Origin", "null"), local=local).refusal
    assert (misdirected is None) == (door.has_keys or (not local and not door.hosts))
    assert misdirected is None or "GATEWAY_ALLOWED_HOSTS" in misdirected.message
    assert (foreign is None) == (door.has_keys and not door.origins)
    assert foreign is None or "GATEWAY_ALLOWED_ORIGINS" in foreign.message


@given(st.text(max_size=60), st.text(max_size=60), st.booleans())
def test_no_header_makes_anything_but_a_verdict(host: str, origin: str, old: bool) -> None:
    for door in (OPEN, LISTS, KEYS, KEYS_AND_LISTS):
        judged(door, ("Host", host), ("Origin", origin), target=host, old=old)


@given(st.text(alphabet="htps:/.locahst0127[]@*-_~#?%\\ ,", max_size=30))
def test_what_is_read_is_written_as_it_was(text: str) -> None:
    for parse in (parse_authority, parse_origin):
        read = parse(text)
        if read is not None:
            assert parse(str(read)) == read
            assert not set("@/?#\\ ,%*") & set(str(read).replace("://", ""))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - compared
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("gate.example", False),
    ],
)
def test_what_listens_on_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected
