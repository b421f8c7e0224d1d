"""Where the gateway listens, who may ask it, and how long it waits for clients."""

from functools import partial

from attrs import frozen

from gateway.config.declared.keys import KeyRing
from gateway.config.declared.setting import setting
from gateway.config.declared.values import (
    boolean,
    host_name,
    host_names,
    origins,
    seconds,
    size,
    text,
    whole,
)
from gateway.core.origins import Authority, Origin

__all__ = ["Serving"]

_MIB = 1 << 20
_serve = partial(setting, group="Serving")


@frozen(kw_only=True, slots=False)
class Serving:
    """Where the gateway listens, who may ask it, and how long it waits for clients."""

    host: str = _serve("GATEWAY_HOST", host_name, "127.0.0.1", "Address to listen on.", reach="start")
    port: int = _serve("GATEWAY_PORT", whole(0, 65535), 8080, "Port to listen on; 0 takes any free one.", reach="start")
    workers: int = _serve(
        "GATEWAY_WORKERS", whole(1, 64), 1, "How many processes answer, under one supervisor.", reach="start"
    )
    pid_file: str | None = _serve(
        "GATEWAY_PID_FILE", text, None, "File that the process id is written to, for `toolgate reload`.", reach="start"
    )
    api_keys: KeyRing = _serve(  # noqa: RUF009 - the call makes an attrs field, not a shared default
        "GATEWAY_API_KEYS",
        text,
        KeyRing(),
        "Keys that open the gateway, comma-separated, or @path of a key file (one per line, plain or sha256:<hex>, "
        "optionally followed by expires=<ISO date>, requests/min=<N>, tokens/min=<N> and streams=<N>); empty asks for "
        "none.",
        is_secret=True,
    )
    allow_open: bool = _serve(
        "GATEWAY_ALLOW_OPEN",
        boolean,
        False,
        "Allow an address that others can reach without GATEWAY_API_KEYS although UPSTREAM_API_KEY is set.",
    )
    allowed_hosts: tuple[Authority, ...] = _serve(
        "GATEWAY_ALLOWED_HOSTS",
        host_names,
        (),
        "Names, comma-separated and each with a port or without, under which a gateway without keys may be asked, "
        "beside localhost, 127.0.0.0/8 and [::1]: on loopback no other is accepted, elsewhere any while this is empty.",
    )
    allowed_origins: tuple[Origin, ...] = _serve(
        "GATEWAY_ALLOWED_ORIGINS",
        origins,
        (),
        "Origins, comma-separated, whose pages may ask from a browser and read the answers (CORS): "
        "https://chat.example, vscode-webview://*. Without keys pages of all others are refused, but for the gateway's "
        "own; with keys all others are refused once this is set.",
    )
    env_file: str | None = _serve(
        "GATEWAY_ENV_FILE",
        text,
        None,
        "File of KEY=value lines that a reload re-reads; the process environment wins at start, the file at reload.",
    )
    config_file: str | None = _serve(
        "GATEWAY_CONFIG",
        text,
        None,
        "TOML file with the same settings as top-level keys, over which everything else wins, and with tables for "
        "several model servers ([upstreams.NAME]) and rules for models ([[models]]).",
    )
    max_body_bytes: int = _serve(
        "GATEWAY_MAX_BODY_BYTES", size(1024), 32 * _MIB, "Largest request body; a larger one is answered with 413."
    )
    body_timeout_s: float = _serve(
        "GATEWAY_BODY_TIMEOUT_S", seconds(), 300.0, "How long a whole request body may take; one that drips is refused."
    )
    max_concurrency: int = _serve(
        "GATEWAY_MAX_CONCURRENCY",
        whole(1, 1_000_000),
        2000,
        "Most requests at a time; more are answered with 503 and Retry-After.",
    )
    client_write_timeout_s: float = _serve(
        "CLIENT_WRITE_TIMEOUT_S", seconds(), 30.0, "How long a client may leave its answer unread."
    )
    keepalive_s: float = _serve(
        "GATEWAY_KEEPALIVE_S", seconds(), 10.0, "How often a silent stream carries a comment line."
    )
    drain_s: float = _serve(
        "GATEWAY_DRAIN_S", seconds(zero=True), 60.0, "How long open streams may run on when the gateway is stopped."
    )
