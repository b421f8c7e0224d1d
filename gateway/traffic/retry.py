"""May an attempt be repeated, and after what wait: a function of the fault, the attempt and a random number.

Only what cannot have cost a generation is repeated: a refused connection, and a 429 or 503 that asks for a short wait.
"""

from attrs import define, frozen

from gateway.core.errors import GatewayError, UpstreamRefused, UpstreamRejected

__all__ = ["RetryBudget", "RetryPolicy", "capped_retry_after"]

# https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py
MAX_RETRY_AFTER_S = 60.0
"""OpenAI's SDKs ignore a longer one and come back within seconds."""


@frozen(kw_only=True)
class RetryPolicy:
    """How often and how long; full jitter between zero and the doubled base."""

    retries: int = 1
    base_s: float = 0.1
    max_wait_s: float = 10.0

    def wait_s(self, error: GatewayError, *, attempt: int, jitter: float) -> float | None:
        """Seconds until attempt `attempt + 1`, or `None` when the fault is final; `jitter` is drawn from [0, 1)."""
        if attempt > self.retries or not _is_repeatable(error):
            return None
        # Clients that failed together come back apart:
        # https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
        spread = jitter * self.base_s * 2.0 ** (attempt - 1)
        wait_s = spread + (error.retry_after_s or 0.0)
        # A longer wait is the client's to make: it knows what it has time for.
        return wait_s if wait_s <= self.max_wait_s else None


@define
class RetryBudget:
    """Retries under way may be at most a share of the requests under way, so that an outage is not multiplied."""

    share: float = 0.2
    floor: int = 3
    _retrying: int = 0

    def take(self, active: int) -> bool:
        """Whether one more retry may start while `active` requests run."""
        # A floor, or a quiet gateway could never try again.
        if self._retrying >= max(self.floor, int(active * self.share)):
            return False
        self._retrying += 1
        return True

    def give_back(self) -> None:
        """A retry that `take` allowed has ended."""
        self._retrying -= 1


def capped_retry_after(seconds: float | None) -> float | None:
    """What a client is told to wait when its upstream asked for `seconds`."""
    return None if seconds is None else min(seconds, MAX_RETRY_AFTER_S)


def _is_repeatable(error: GatewayError) -> bool:
    if isinstance(error, UpstreamRefused):
        return True
    # A 500 or 502 may come behind a generation that was paid for.
    return isinstance(error, UpstreamRejected) and error.upstream_status in (429, 503)
