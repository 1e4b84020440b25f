"""The Lua scripts of a `RedisStore`: one atomic script per operation, and the layout of the documents.

Needs no more than Redis 6.2 or Valkey: every key a script touches is declared, and all of them have one hash tag, so
that they are on one node of a cluster.

- `{prefix}:documents`: hash of name -> `revision expires-or-dash json`; a name is the collection's length, the
  collection and the key.
- `{prefix}:order`: a sorted set where every score is 0, which is the order of bytes, which in UTF-8 is the order of
  code points. It has the names, and `!TIME NAME` for each name with a ttl: a time at which it has expired for certain.

The hash also has `revision`, the last revision, and for a while `done:TOKEN`, the outcome of a write, so that a
repeated write is recognised by its token.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RedisScript:
    """A script and its digest; or a command of one key that needs no script."""

    source: str
    digest: str
    writes: bool
    command: str = ""


def _script(*parts: str, writes: bool = False) -> RedisScript:
    source = "".join(parts)
    return RedisScript(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(), writes)


# A client with its own clock passes the time; all others have the server's, the same for all machines.
_NOW = """
local function time(given)
  if given ~= '' then return tonumber(given) end
  local now = redis.call('TIME')
  return tonumber(now[1]) + tonumber(now[2]) / 1000000
end
"""

_KEPT = """
local function kept(stored, now)
  local expires = stored and string.match(stored, '^%d+ (%S+) ')
  return expires and (expires == '-' or tonumber(expires) > now)
end
"""

SIGNAL = RedisScript("", "", writes=False, command="PUBLISH")
"""KEYS channel; ARGV name."""

GET = _script(
    _NOW,
    _KEPT,
    """
local now, found = time(ARGV[1]), {}
local stored = redis.call('HMGET', KEYS[1], unpack(ARGV, 2))
for at = 1, #ARGV - 1 do found[at] = kept(stored[at], now) and stored[at] or false end
return found
""",
)
"""KEYS documents; ARGV now, names. Returns the stored value, or nil, for each."""

# A revision is at least the server's time in microseconds: a server that lost its last writes (it had no disk,
# or a replica took over) never assigns their revisions again. One script makes all changes or none, in as few commands
# as there are kinds of them: names and expiries share one sorted set for that. A write with the sweep flag drops a
# bounded number of expired documents, which are hidden until then. The name of a deleted document expires at once.
WRITE = _script(
    """
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = ARGV[1] ~= '' and tonumber(ARGV[1]) or micros / 1000000
local done = 'done:' .. ARGV[2]

local function kept(stored)
  if not stored then return '0' end
  local revision, expires = string.match(stored, '^(%d+) (%S+) ')
  if expires ~= '-' and tonumber(expires) <= now then return '0' end
  return revision
end

local function end_at(time, name) return string.format('!%020.6f ', time) .. name end

-- a document that is written again soon, with the same ttl, mostly has its end noted already
local function end_about(time, ttl, name)
  local _, exponent = math.frexp(ttl)
  local step = 2 ^ (exponent - 5)
  return end_at(math.ceil(time / step) * step, name)
end

if ARGV[4] == '1' then
  local ends = redis.call('ZRANGEBYLEX', KEYS[2], '[!', string.format('(!%020.6f!', now), 'LIMIT', 0, 100)
  if #ends > 0 then
    local names, gone = {}, {}
    for at, one in ipairs(ends) do names[at] = string.match(one, '^!%s*%S+ (.*)$') end
    local stored = redis.call('HMGET', KEYS[1], unpack(names))
    for at, name in ipairs(names) do
      if kept(stored[at]) == '0' then
        gone[#gone + 1] = name
        ends[#ends + 1] = name
      end
    end
    redis.call('ZREM', KEYS[2], unpack(ends))
    if #gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
  end
end

-- one read for all that is decided by: the last revision, the outcome of an earlier try, every document
local names = {'revision', done}
for at = 6, #ARGV, 5 do names[#names + 1] = ARGV[at + 1] end
local stored = redis.call('HMGET', KEYS[1], unpack(names))
-- this very write was made before, and its answer was lost: the same answer again, and nothing is done
if stored[2] then return string.match(stored[2], '^%d+ %S+ (.*)$') end
local place = 2
for at = 6, #ARGV, 5 do
  place = place + 1
  if ARGV[at + 4] ~= '' and ARGV[at + 4] ~= kept(stored[place]) then return false end
end

-- every expectation holds; from here on nothing may fail, for Redis undoes no part of a script
local revision = math.max(tonumber(stored[1] or '0'), micros - 1)
local hash, order, deleted, revisions = {}, {}, {}, {}
place = 2
for at = 6, #ARGV, 5 do
  place = place + 1
  local name, ttl = ARGV[at + 1], ARGV[at + 3]
  if ARGV[at] == 'put' then
    revision = revision + 1
    local text, expires = string.format('%.0f', revision), '-'
    if ttl ~= '' then
      local time = now + tonumber(ttl)
      expires = string.format('%.17g', time)
      order[#order + 1] = 0
      order[#order + 1] = end_about(time, tonumber(ttl), name)
    end
    hash[#hash + 1] = name
    hash[#hash + 1] = text .. ' ' .. expires .. ' ' .. ARGV[at + 2]
    -- an expired document that was not swept still has its name in the order
    if not stored[place] then
      order[#order + 1] = 0
      order[#order + 1] = name
    end
    revisions[#revisions + 1] = text
  else
    if stored[place] then
      deleted[#deleted + 1] = name
      order[#order + 1] = 0
      order[#order + 1] = end_at(now, name)
    end
    revisions[#revisions + 1] = kept(stored[place]) ~= '0' and '-1' or '0'
  end
end

-- a write that changed nothing needs no memory of its outcome: done again, it gives the same
local written = table.concat(revisions, ' ')
if #hash == 0 and #deleted == 0 then return written end
local last = string.format('%.0f', revision)
local seconds = tonumber(ARGV[3]) / 1000
hash[#hash + 1] = 'revision'
hash[#hash + 1] = last
hash[#hash + 1] = done
hash[#hash + 1] = '0 ' .. string.format('%.17g', now + seconds) .. ' ' .. written
order[#order + 1] = 0
order[#order + 1] = end_about(now + seconds, seconds, done)
-- what makes room comes first: after it a server that is full takes the rest
if #deleted > 0 then redis.call('HDEL', KEYS[1], unpack(deleted)) end
redis.call('HSET', KEYS[1], unpack(hash))
redis.call('ZADD', KEYS[2], unpack(order))
if ARGV[5] ~= '' then redis.call('PUBLISH', KEYS[3], ARGV[5]) end
return written
""",
    writes=True,
)
"""KEYS documents, order, channel; ARGV now, token, milliseconds to remember, 1 to sweep, a signal, and for
each change `put` or `delete`, name, JSON, ttl, expect. Returns the revisions, separated by spaces, -1 for a deleted
document and 0 for a missing one; nil when a revision did not match."""

# Bounded in names and in bytes, however many are past their ttl: others wait while a script runs.
SCAN = _script(
    _NOW,
    _KEPT,
    """
local now, limit = time(ARGV[3]), tonumber(ARGV[4])
local names = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, 500)
local found, bytes = {''}, 0
for first = 1, #names, 50 do
  local stored = redis.call('HMGET', KEYS[1], unpack(names, first, math.min(first + 49, #names)))
  for at, one in ipairs(stored) do
    if kept(one, now) then
      found[#found + 1] = names[first + at - 1]
      found[#found + 1] = one
      bytes = bytes + #one
      if #found > 2 * limit or bytes > 1000000 then
        found[1] = names[first + at - 1]
        return found
      end
    end
  end
end
if #names == 500 then found[1] = names[500] end
return found
""",
)
"""KEYS documents, order; ARGV first, last, now, limit. Returns the name to continue after, or '', then names and stored
values."""

COMPACT = _script(
    """
local ends = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], '("', 'LIMIT', 0, 500)
if #ends == 0 then return '' end
local names, gone = {}, {}
for at, one in ipairs(ends) do names[at] = string.match(one, '^!%s*%S+ (.*)$') end
local stored = redis.call('HMGET', KEYS[1], unpack(names))
for at, one in ipairs(ends) do
  if not stored[at] then
    gone[#gone + 1] = one
    gone[#gone + 1] = names[at]
  end
end
if #gone > 0 then redis.call('ZREM', KEYS[2], unpack(gone)) end
return ends[#ends]
""",
    writes=True,
)
"""KEYS documents, order; ARGV first. Drops the names and ends of documents that exist no more. Returns the end to
continue after, or ''."""
