"""The Lua scripts of a `RedisStore`: one atomic script per operation, and the layout of the documents.

Needs no more than Redis 6.2 or Valkey.

- `{prefix}:document:NAME`: a string, `revision expires-or-dash json`; a name is the collection's length, the collection
  and the key. Redis itself removes it when it expires.
- `{prefix}:order`: a sorted set of the names where every score is 0, which is the order of bytes, which in UTF-8 is the
  order of code points.
- `{prefix}:ends`: a sorted set of the names of documents with a ttl, by the time when they expire. Redis cannot expire
  members of a set, so writes remove a bounded number of the names whose documents have expired. Until then the names
  lead to nothing and are passed over.
- `{prefix}:revision`: the last revision.
- `{prefix}:done:TOKEN`: the outcome of a write, for a while, so that a repeated write is recognised by its token.

All keys of a prefix have one hash tag, so that they are in one slot of a cluster: that keeps a write of several
documents atomic. Stores of other prefixes are in other slots. Scripts are given the keys that they read and write,
except for the documents of a listing, whose names are only found in the script; they are in the same slot.
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


SIGNAL = RedisScript("", "", writes=False, command="PUBLISH")
"""KEYS channel; ARGV name."""

READ = RedisScript("", "", writes=False, command="MGET")
"""KEYS documents. Returns the stored value, or nil, for each; a client with its own clock looks at their expiry."""

# By the server's clock Redis decides what has expired: its time stands still while a script runs. A client with its own
# clock passes the time.
_KEPT = """
local function kept(stored, given)
  if not stored then return '0' end
  local revision, expires = string.match(stored, '^(%d+) (%S+) ')
  if given ~= '' and expires ~= '-' and tonumber(expires) <= tonumber(given) then return '0' end
  return revision
end
"""

# By the server's clock a millisecond late, as Redis' own expiry is: what is due here is gone there.
_SWEEP = """
local function sweep(now, given, base)
  local last = given ~= '' and given or string.format('(%.17g', now - 0.001)
  local names = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', last, 'LIMIT', 0, 100)
  if #names == 0 then return 0 end
  redis.call('ZREM', KEYS[1], unpack(names))
  redis.call('ZREM', KEYS[2], unpack(names))
  if given ~= '' then
    for at, name in ipairs(names) do names[at] = base .. name end
    redis.call('UNLINK', unpack(names))
  end
  return #names
end

local function time(given)
  if given ~= '' then return tonumber(given) end
  local now = redis.call('TIME')
  return tonumber(now[1]) + tonumber(now[2]) / 1000000
end
"""

# A revision is at least the server's time in microseconds: a server that lost its last writes (it had no disk,
# or a replica took over) never assigns their revisions again. One script makes all changes or none. A write with the
# sweep flag removes a bounded number of names of expired documents.
WRITE = _script(
    _KEPT,
    _SWEEP,
    """
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local given, base = ARGV[1], ARGV[2]
local now = given ~= '' and tonumber(given) or micros / 1000000

if ARGV[4] == '1' then sweep(now, given, base) end

-- one read for all that is decided by: the last revision, the outcome of an earlier try, every document
local stored = redis.call('MGET', unpack(KEYS, 4))
-- this very write was made before, and its answer was lost: the same answer again, and nothing is done
if stored[2] then return stored[2] end
for one = 1, #KEYS - 5 do
  local expect = ARGV[5 + 4 * one]
  if expect ~= '' and expect ~= kept(stored[one + 2], given) then return false end
end

-- every expectation holds; from here on nothing may fail, for Redis undoes no part of a script
local revision = math.max(tonumber(stored[1] or '0'), micros - 1)
local deleted, puts, revisions = {}, {}, {}
local order, ends, unordered, endless = {}, {}, {}, {}
for one = 1, #KEYS - 5 do
  local key, old, first = KEYS[5 + one], stored[one + 2], 2 + 4 * one
  local name, ttl = string.sub(key, #base + 1), ARGV[first + 2]
  if ARGV[first] == 'put' then
    revision = revision + 1
    local text, expires, millis = string.format('%.0f', revision), '-', nil
    if ttl ~= '' then
      local time = now + tonumber(ttl)
      if given == '' then
        -- to the millisecond, as Redis expires
        millis = math.max(1, math.ceil(time * 1000))
        time = millis / 1000
      end
      expires = string.format('%.17g', time)
      ends[#ends + 1] = expires
      ends[#ends + 1] = name
    elseif not old or not string.find(old, '^%d+ %- ') then
      endless[#endless + 1] = name
    end
    -- a time that Redis cannot count to never comes
    if millis and millis > 9e15 then millis = nil end
    puts[#puts + 1] = {key, text .. ' ' .. expires .. ' ' .. ARGV[first + 1], millis}
    if not old then
      order[#order + 1] = '0'
      order[#order + 1] = name
    end
    revisions[#revisions + 1] = text
  else
    if old then
      deleted[#deleted + 1] = key
      unordered[#unordered + 1] = name
      endless[#endless + 1] = name
    end
    revisions[#revisions + 1] = kept(old, given) ~= '0' and '-1' or '0'
  end
end

-- a write that changed nothing needs no memory of its outcome: done again, it gives the same
local written = table.concat(revisions, ' ')
if #puts == 0 and #deleted == 0 then return written end
-- The first command is one that makes room, or one that a full server refuses: after it a full server takes the rest.
if #deleted > 0 then redis.call('UNLINK', unpack(deleted)) end
for _, put in ipairs(puts) do
  if put[3] then
    redis.call('SET', put[1], put[2], 'PXAT', string.format('%.0f', put[3]))
  else
    redis.call('SET', put[1], put[2])
  end
end
if #order > 0 then redis.call('ZADD', KEYS[1], unpack(order)) end
if #unordered > 0 then redis.call('ZREM', KEYS[1], unpack(unordered)) end
if #ends > 0 then redis.call('ZADD', KEYS[2], unpack(ends)) end
if #endless > 0 then redis.call('ZREM', KEYS[2], unpack(endless)) end
redis.call('SET', KEYS[4], string.format('%.0f', revision))
redis.call('SET', KEYS[5], written, 'PX', ARGV[3])
if ARGV[5] ~= '' then redis.call('PUBLISH', KEYS[3], ARGV[5]) end
return written
""",
    writes=True,
)
"""KEYS order, ends, channel, revision, done:TOKEN, and a document for each change; ARGV now, the start of the keys of
documents, milliseconds to remember, 1 to sweep, a signal, and for each change `put` or `delete`, JSON, ttl, expect.
Returns the revisions, separated by spaces, -1 for a deleted document and 0 for a missing one; nil when a revision did
not match."""

# Bounded in names and in bytes, however many are past their ttl: others wait while a script runs.
SCAN = _script(
    _KEPT,
    """
local limit, base = tonumber(ARGV[4]), ARGV[5]
local names = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, 500)
local found, bytes = {''}, 0
for first = 1, #names, 50 do
  local keys = {}
  for at = first, math.min(first + 49, #names) do keys[#keys + 1] = base .. names[at] end
  for at, one in ipairs(redis.call('MGET', unpack(keys))) do
    if kept(one, ARGV[3]) ~= '0' then
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
"""KEYS order; ARGV first, last, now, limit, the start of the keys of documents. Returns the name to continue after,
or '', then names and stored values."""

# Bounded as a listing is. Only what contains a text leaves the server.
SEARCH = _script(
    _KEPT,
    """
local base, head = ARGV[4], tonumber(ARGV[5])
local names = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, 1000)
local found, bytes = {''}, 0
for first = 1, #names, 50 do
  local keys = {}
  for at = first, math.min(first + 49, #names) do keys[#keys + 1] = base .. names[at] end
  for at, one in ipairs(redis.call('MGET', unpack(keys))) do
    if one then
      local name = names[first + at - 1]
      bytes = bytes + #one
      for text = 6, #ARGV do
        if string.find(name, ARGV[text], head + 1, true) or string.find(one, ARGV[text], 1, true) then
          -- rare, so it is only now that the front of the value is looked at: its revision and its end are not searched
          local _, front = string.find(one, '^%d+ %S+ ')
          local is_in_name = string.find(name, ARGV[text], head + 1, true)
          if kept(one, ARGV[3]) ~= '0' and (is_in_name or string.find(one, ARGV[text], front + 1, true)) then
            found[#found + 1] = name
            found[#found + 1] = one
            break
          end
        end
      end
    end
  end
  if bytes > 1000000 then
    found[1] = names[math.min(first + 49, #names)]
    return found
  end
end
if #names == 1000 then found[1] = names[1000] end
return found
""",
)
"""KEYS order; ARGV first, last, now, the start of the keys of documents, the length of the collection's prefix, texts.
Returns the name to continue after, or '', then names and stored values."""

COMPACT = _script(_SWEEP, "return sweep(time(ARGV[1]), ARGV[1], ARGV[2])", writes=True)
"""KEYS order, ends; ARGV now, start of the keys of documents. Removes names of expired documents; returns how many."""
