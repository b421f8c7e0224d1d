"""What Redis does in one step, in Lua. Every script's first argument is the prefix of all keys.

| key | holds |
| --- | --- |
| `log:KIND` | a stream of the records of a kind, each one JSON text in the field `r`, in order of arrival |
| `at:KIND` | their ids by the records' own time, which is not that of arrival |
| `answer:DIGEST` | the id of the request whose answer had this completion id |
| `batch:DIGEST` | this batch was written: who repeats it for want of an answer does not write it twice |
| `value:KEY` | a value |
| `blocks`, `counts:N`, `marks:N` | the numbers of the blocks there are, and what each holds |

The types of keys are looked at before anything is written, so that a script that fails has done nothing.
"""

__all__ = ["APPEND", "BLOCKS", "FIND_ANSWER", "FORGET", "SCAN", "SWAP", "TALLY"]

APPEND = """
local prefix, cap, answer_s, once = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[1] .. 'batch:' .. ARGV[4]
if redis.call('EXISTS', once) == 1 then return 0 end
local kinds = {}
for i = 6, #ARGV, 4 do kinds[ARGV[i]] = true end
for kind in pairs(kinds) do
  local log = redis.call('TYPE', prefix .. 'log:' .. kind).ok
  local at = redis.call('TYPE', prefix .. 'at:' .. kind).ok
  if (log ~= 'none' and log ~= 'stream') or (at ~= 'none' and at ~= 'zset') then
    return redis.error_reply('WRONGTYPE')
  end
end
redis.call('SET', once, '', 'EX', ARGV[5])
for i = 6, #ARGV, 4 do
  local id = redis.call('XADD', prefix .. 'log:' .. ARGV[i], '*', 'r', ARGV[i + 3])
  redis.call('ZADD', prefix .. 'at:' .. ARGV[i], ARGV[i + 1], id)
  if ARGV[i + 2] ~= '' then redis.call('SET', prefix .. 'answer:' .. ARGV[i + 2], id, 'EX', answer_s) end
end
for kind in pairs(kinds) do
  local over = redis.call('ZCARD', prefix .. 'at:' .. kind) - cap
  if over > 0 then
    local gone = redis.call('ZPOPMIN', prefix .. 'at:' .. kind, math.min(over, 1000))
    for i = 1, #gone, 2 do redis.call('XDEL', prefix .. 'log:' .. kind, gone[i]) end
  end
end
return 1
"""

SCAN = """
local log, at = ARGV[1] .. 'log:' .. ARGV[2], ARGV[1] .. 'at:' .. ARGV[2]
local ids = redis.call('ZRANGEBYSCORE', at, ARGV[3], ARGV[4], 'WITHSCORES', 'LIMIT', ARGV[5], ARGV[6])
local found = {}
for i = 1, #ids, 2 do
  local entry = redis.call('XRANGE', log, ids[i], ids[i])[1]
  found[#found + 1] = ids[i + 1]
  found[#found + 1] = entry and entry[2][2] or ''
end
return found
"""

FIND_ANSWER = """
local id = redis.call('GET', ARGV[1] .. 'answer:' .. ARGV[2])
local entry = id and redis.call('XRANGE', ARGV[1] .. 'log:requests', id, id)[1]
return entry and entry[2][2]
"""

FORGET = """
local prefix, before, left = ARGV[1], ARGV[2], tonumber(ARGV[3])
local heads, gone = {}, {}
for i = 4, #ARGV do
  heads[i] = redis.call('ZRANGEBYSCORE', prefix .. 'at:' .. ARGV[i], '-inf', before, 'WITHSCORES', 'LIMIT', 0, left)
  gone[i] = 0
end
local count = 0
while left > 0 do
  local first, first_at = nil, nil
  for i = 4, #ARGV do
    local at = tonumber(heads[i][gone[i] + 2])
    if at and (not first_at or at < first_at) then first, first_at = i, at end
  end
  if not first then break end
  local id = heads[first][gone[first] + 1]
  redis.call('ZREM', prefix .. 'at:' .. ARGV[first], id)
  redis.call('XDEL', prefix .. 'log:' .. ARGV[first], id)
  gone[first], count, left = gone[first] + 2, count + 1, left - 1
end
return count
"""

SWAP = """
local key = ARGV[1] .. 'value:' .. ARGV[2]
local value = redis.call('GET', key)
if ARGV[3] == '1' then
  if value ~= ARGV[4] then return 0 end
elseif value then return 0 end
redis.call('SET', key, ARGV[5])
return 1
"""

TALLY = """
local prefix, keep_s, jump_s, counts = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local now = tonumber(redis.call('TIME')[1])
local number = now
local last = tonumber(redis.call('ZREVRANGE', prefix .. 'blocks', 0, 0)[1])
if last and last > now then
  if last <= now + jump_s then number = last
  else redis.call('ZREMRANGEBYSCORE', prefix .. 'blocks', '(' .. now, '+inf') end
end
redis.call('ZREMRANGEBYSCORE', prefix .. 'blocks', '-inf', now - keep_s)
redis.call('ZADD', prefix .. 'blocks', number, number)
local counted, marked = prefix .. 'counts:' .. number, prefix .. 'marks:' .. number
for i = 5, 4 + 2 * counts, 2 do redis.call('HINCRBY', counted, ARGV[i], ARGV[i + 1]) end
for i = 5 + 2 * counts, #ARGV do redis.call('SADD', marked, ARGV[i]) end
redis.call('EXPIRE', counted, keep_s)
redis.call('EXPIRE', marked, keep_s)
return number
"""

BLOCKS = """
local prefix, after, now = ARGV[1], ARGV[2], redis.call('TIME')[1]
if tonumber(after) > now + ARGV[4] then after = 0 end
local numbers = redis.call('ZRANGEBYSCORE', prefix .. 'blocks', '(' .. after, '(' .. now, 'LIMIT', 0, ARGV[3])
local found = {}
for i, number in ipairs(numbers) do
  found[i] = {
    number,
    redis.call('HGETALL', prefix .. 'counts:' .. number),
    redis.call('SMEMBERS', prefix .. 'marks:' .. number),
  }
end
return found
"""
