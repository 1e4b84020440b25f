"""What a `RedisStore` has its server do: one script per promise, each carried out whole or not at all.

Knows how the documents lie in Redis; nothing of connections. Needs no more than Redis 6.2 or Valkey: every key a script
touches is declared, and all of them have one hash tag, so that they lie on one node of a cluster.

- `{prefix}:documents`: hash of name -> `revision expires-or-dash json`; a name is the collection's length, the
  collection and the key.
- `{prefix}:order`: the names in a sorted set where every score is 0, which is the order of their bytes, which in UTF-8
  is the order of code points.
- `{prefix}:expiring`: the names of what has a ttl, by the time it ends.
- `{prefix}:revision`: the last revision.
- `{prefix}:done:...`: for a while, what became of a write, so that one which is sent again is known by its token.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

__all__ = ["DELETE", "GET", "PUT", "SCAN", "Script"]


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the name Redis has for it."""

    source: str
    digest: str
    writes: bool


def _script(*parts: str, writes: bool = False) -> Script:
    source = "".join(parts)
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(), writes)


# A caller that has a clock of its own gives the time; all others have the server's, the same for all machines.
_NOW = """
local function time(given)
  if given ~= '' then return tonumber(given) end
  local now = redis.call('TIME')
  return tonumber(now[1]) + tonumber(now[2]) / 1000000
end
"""

_KEPT = """
local function kept(name, now)
  local stored = redis.call('HGET', KEYS[1], name)
  if not stored then return nil, '0' end
  local revision, expires = string.match(stored, '^(%d+) (%S+) ')
  if expires ~= '-' and tonumber(expires) <= now then return nil, '0' end
  return stored, revision
end
"""

# A bounded portion at every write: what is due is not shown meanwhile. It also makes room in a server that is full.
_SWEEP = """
local function sweep(now)
  local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.17g', now), 'LIMIT', 0, 50)
  if #due > 0 then
    redis.call('ZREM', KEYS[3], unpack(due))
    redis.call('ZREM', KEYS[2], unpack(due))
    redis.call('HDEL', KEYS[1], unpack(due))
  end
end
"""

GET = _script(
    _NOW,
    _KEPT,
    """
local stored = kept(ARGV[1], time(ARGV[2]))
return stored or false
""",
)
"""KEYS documents; ARGV name, now. Returns what is stored, or nil."""

# A revision is no smaller than the server's microseconds: a server that forgot its last writes (it had no disk, or a
# replica took over) gives none of theirs to others.
PUT = _script(
    _NOW,
    _KEPT,
    _SWEEP,
    """
local done = redis.call('GET', KEYS[5])
if done then return tonumber(done) end
local name, json, ttl, expect, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4], time(ARGV[5])
sweep(now)
local _, found = kept(name, now)
if expect ~= '' and expect ~= found then return false end
local clock = redis.call('TIME')
local revision = math.max(tonumber(redis.call('GET', KEYS[4]) or '0') + 1, clock[1] * 1000000 + clock[2])
revision = string.format('%.0f', revision)
redis.call('SET', KEYS[4], revision)
local expires = '-'
if ttl == '' then
  redis.call('ZREM', KEYS[3], name)
else
  expires = string.format('%.17g', now + tonumber(ttl))
  redis.call('ZADD', KEYS[3], expires, name)
end
redis.call('ZADD', KEYS[2], 0, name)
redis.call('HSET', KEYS[1], name, revision .. ' ' .. expires .. ' ' .. json)
redis.call('SET', KEYS[5], revision, 'PX', ARGV[6])
return tonumber(revision)
""",
    writes=True,
)
"""KEYS all; ARGV name, JSON, ttl, expect, now, milliseconds to remember. Returns the revision, or nil."""

DELETE = _script(
    _NOW,
    _KEPT,
    _SWEEP,
    """
if redis.call('EXISTS', KEYS[5]) == 1 then return 1 end
local name, expect, now = ARGV[1], ARGV[2], time(ARGV[3])
sweep(now)
local stored, found = kept(name, now)
if not stored or (expect ~= '' and expect ~= found) then return 0 end
redis.call('HDEL', KEYS[1], name)
redis.call('ZREM', KEYS[2], name)
redis.call('ZREM', KEYS[3], name)
redis.call('SET', KEYS[5], found, 'PX', ARGV[4])
return 1
""",
    writes=True,
)
"""KEYS all; ARGV name, expect, now, milliseconds to remember. Returns 1 when a document was deleted."""

# Bounded in names and in bytes, however many are past their ttl: others wait while a script runs.
SCAN = _script(
    _NOW,
    _KEPT,
    """
local now, limit = time(ARGV[3]), tonumber(ARGV[4])
local names = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, 500)
local found, bytes = {''}, 0
for _, name in ipairs(names) do
  local stored = kept(name, now)
  if stored then
    found[#found + 1] = name
    found[#found + 1] = stored
    bytes = bytes + #stored
    if #found > 2 * limit or bytes > 1000000 then
      found[1] = name
      return found
    end
  end
end
if #names == 500 then found[1] = names[500] end
return found
""",
)
"""KEYS documents, order; ARGV first, last, now, limit. Returns the name to go on after, or '', then names and what is
stored."""
