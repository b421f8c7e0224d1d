"""What keys may use, counted once for all processes and hosts: in Redis, in one step each, by the server's clock.

| key | holds |
| --- | --- |
| `quota:{KEY}:requests` | a list of when a request was admitted, in microseconds, of the last minute |
| `quota:{KEY}:tokens`, `...:sum` | a list of what answers cost and when, and the sum of what is in it |
| `quota:{KEY}:streams` | the ids of streams under way by when their lease ends |

The braces keep what belongs to one key on one node of a cluster:
https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags
"""

from collections.abc import Sequence

from gateway.core.rules import LEASE_S, WINDOW_S, Quota, Standing, refusal
from gateway.state.redis import RedisStore

__all__ = ["RedisQuotas"]

_MICRO = 1_000_000

_CLOCK = """
local time = redis.call('TIME')
local now, window = time[1] * 1000000 + time[2], 60000000
local function key(part) return ARGV[1] .. 'quota:{' .. ARGV[2] .. '}:' .. part end
"""
# A number with more than fourteen digits is written in full only by this format.
_FORGET = """
local function forget(list, sum)
  while true do
    local first = redis.call('LINDEX', list, 0)
    if not first then
      if sum then redis.call('DEL', sum) end
      return
    end
    local at, amount = first:match('^(%d+):?(%d*)')
    at = tonumber(at)
    if at > now - window and at <= now then return end
    redis.call('LPOP', list)
    if sum then redis.call('DECRBY', sum, amount) end
  end
end
local function stamp() return string.format('%.0f', now) end
local function ends(list, place)
  local entry = redis.call('LINDEX', list, place)
  return entry and string.format('%.0f', tonumber(entry:match('^%d+')) + window - now) or '0'
end
"""

ENTER = (
    _CLOCK
    + _FORGET
    + """
local most_requests, most_tokens = tonumber(ARGV[3]), tonumber(ARGV[4])
local requests, tokens, sum = key('requests'), key('tokens'), key('sum')
forget(requests)
forget(tokens, sum)
local used, spent = redis.call('LLEN', requests), tonumber(redis.call('GET', sum) or '0')
if most_requests >= 0 and used >= most_requests then
  return {'requests', used, ends(requests, -1), ends(requests, used - most_requests), spent, ends(tokens, -1)}
end
if most_tokens >= 0 and spent >= most_tokens then
  local left, place, wait = spent, 0, '0'
  while left >= most_tokens do
    wait = ends(tokens, place)
    local entry = redis.call('LINDEX', tokens, place)
    if not entry then break end
    left, place = left - tonumber(entry:match(':(%d+)')), place + 1
  end
  return {'tokens', used, ends(requests, -1), wait, spent, ends(tokens, -1)}
end
if most_requests >= 0 then
  redis.call('RPUSH', requests, stamp())
  redis.call('PEXPIRE', requests, 61000)
  used = used + 1
end
return {'', used, ends(requests, -1), '0', spent, ends(tokens, -1)}
"""
)

SPEND = (
    _CLOCK
    + _FORGET
    + """
local tokens, sum = key('tokens'), key('sum')
forget(tokens, sum)
redis.call('RPUSH', tokens, stamp() .. ':' .. ARGV[3])
redis.call('INCRBY', sum, ARGV[3])
redis.call('PEXPIRE', tokens, 61000)
redis.call('PEXPIRE', sum, 61000)
"""
)

LEASE = (
    _CLOCK
    + """
local streams, most = key('streams'), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', streams, '-inf', time[1])
local used = redis.call('ZCARD', streams)
if used >= most and not redis.call('ZSCORE', streams, ARGV[4]) then return {0, used} end
redis.call('ZADD', streams, time[1] + ARGV[5], ARGV[4])
redis.call('EXPIRE', streams, ARGV[5])
return {1, used}
"""
)

RELEASE = _CLOCK + "return redis.call('ZREM', key('streams'), ARGV[3])"

_NO_LIMIT = -1


class RedisQuotas:
    """The uses of all keys in the server of a store; every method raises `StoreError` where it cannot be asked."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    async def enter(self, key: str, quota: Quota) -> dict[str, Standing]:
        """Admit a request, and say how the key stands then; raises `RateLimited`."""
        most = [_NO_LIMIT if limit is None else limit for limit in (quota.requests, quota.tokens)]
        what, *numbers = await self._store.run_script(ENTER, key, *most)
        standings = _standings(quota, [int(number) for number in numbers])
        if what:
            raise refusal(what.decode(), standings)
        return standings

    async def spend(self, key: str, tokens: int) -> None:
        """Count what an answer has cost."""
        await self._store.run_script(SPEND, key, tokens)

    async def lease(self, key: str, quota: Quota, id: str) -> None:
        """Take, or keep, one of a key's places for streams; raises `RateLimited`."""
        if quota.streams is None:
            return
        is_had, used = await self._store.run_script(LEASE, key, quota.streams, id, int(LEASE_S))
        if not is_had:
            raise refusal("streams", {"streams": Standing(limit=quota.streams, used=int(used))})

    async def release(self, key: str, id: str) -> None:
        """The stream has ended."""
        await self._store.run_script(RELEASE, key, id)

    async def close(self) -> None:
        """Give up all connections."""
        await self._store.close()


def _standings(quota: Quota, numbers: Sequence[int]) -> dict[str, Standing]:
    used, reset, wait, spent, tokens_reset = numbers
    wait_s = min(wait / _MICRO, WINDOW_S)
    found = {}
    if quota.requests is not None:
        found["requests"] = Standing(limit=quota.requests, used=used, reset_s=reset / _MICRO, wait_s=wait_s)
    if quota.tokens is not None:
        found["tokens"] = Standing(limit=quota.tokens, used=spent, reset_s=tokens_reset / _MICRO, wait_s=wait_s)
    return found
