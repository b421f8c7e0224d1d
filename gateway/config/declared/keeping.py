"""What is kept, and where."""

from functools import partial
from typing import Literal

from attrs import frozen

from gateway.config.declared.setting import setting
from gateway.config.declared.values import choice, seconds, size, store_url, text, whole

__all__ = ["Keeping"]

_keep = partial(setting, group="Store")


@frozen(kw_only=True, slots=False)
class Keeping:
    """What is kept, and where."""

    store_url: str = _keep(
        "STORE_URL",
        store_url,
        "sqlite:///toolgate.db",
        "Where records, sessions and the rollout's state are kept: sqlite:///file, redis://host:port/0, rediss://..., "
        "unix://..., or memory:// for this process alone.",
        is_secret=True,
        reach="restart",
    )
    store_prefix: str = _keep(
        "STORE_PREFIX", text, "toolgate:", "What every key in Redis begins with.", reach="restart"
    )
    store_timeout_ms: int = _keep(
        "STORE_TIMEOUT_MS", whole(10, 60_000), 200, "How long one operation on the store may take.", reach="restart"
    )
    store_retention_days: int = _keep("STORE_RETENTION_DAYS", whole(1, 3650), 14, "How long records are kept.")
    store_max_bytes: int = _keep(
        "STORE_MAX_BYTES", size(1 << 20), 1 << 30, "Most room that records take; the oldest go first."
    )
    audit_bodies: Literal["none", "redacted", "full"] = _keep(
        "AUDIT_BODIES",
        choice("none", "redacted", "full"),
        "redacted",
        "What records keep of texts; none: nothing; redacted: candidates with 200 characters around them, credentials "
        "masked; full: requests and answers too, which `toolgate export` needs.",
    )
    responses_ttl_s: float = _keep(
        "RESPONSES_TTL_S",
        seconds(zero=True),
        86_400.0,
        "How long answers on `/v1/responses` are kept for `previous_response_id` and to be asked for by their ids; 0: "
        "none are. Nor are any with `AUDIT_BODIES=none`, or where the client says `store: false`.",
    )
    responses_max_bytes: int = _keep(
        "RESPONSES_MAX_BYTES",
        size(1 << 10),
        4 << 20,
        "A larger answer with the input of its request is not kept.",
    )
