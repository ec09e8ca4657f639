-- acquire_fair: create a lock for one owner if it is the waiter's turn, or if the
-- waiter barges; or keep the waiter a place in the queue.
--
-- KEYS[1]  the lock, a hash
-- KEYS[2]  its fence, the highest token seen
-- KEYS[3]  the queue, a sorted set: waiters by their tickets
-- KEYS[4]  the waiter's place: it is there as long as the place is kept
-- ARGV[1]  owner
-- ARGV[2]  token
-- ARGV[3]  life of the lock, ms
-- ARGV[4]  life of the fence, ms
-- ARGV[5]  ticket
-- ARGV[6]  waiter
-- ARGV[7]  life of the place, ms; 0: none is made
-- ARGV[8]  what the keys of all places begin with
-- ARGV[9]  1: the waiter barges, 0: it does not
--
-- Returns 1 (granted), {0, ms left or -1, fence, waiters before this one at most,
-- what is in the way} (refused: ms left of the lock, or else of the first waiter's
-- place; in the way is 0: a lock, 1: a lock of another make, 2: no lock), or
-- {2, fence} (stale: the token is not above the fence).
--
-- Atomic, as acquire is, and because the turn must not pass in between.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  return 1
end
local token = tonumber(ARGV[2])
local fence = tonumber(redis.call('GET', KEYS[2]) or 0)
-- Who did not ask again in time is gone. Those behind the first may stay: they
-- are seen to when they are first.
local line = redis.pcall('ZRANGE', KEYS[3], 0, 0)
if line.err then
  return redis.error_reply(line.err .. ': ' .. KEYS[3])
end
local first = line[1]
while first and redis.call('EXISTS', ARGV[8] .. first) == 0 do
  redis.call('ZREM', KEYS[3], first)
  first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
end
local free = redis.call('EXISTS', KEYS[1]) == 0
local before = redis.call('ZRANK', KEYS[3], ARGV[6]) or redis.call('ZCOUNT', KEYS[3], '-inf', ARGV[5])
local turn = free and (before == 0 or ARGV[9] == '1')
if turn and token > fence then
  -- What can fail, for want of memory or of a right, fails first; and a lock that
  -- would never expire must not stay.
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[4])
  redis.call('HSET', KEYS[1], ARGV[1], 1)
  local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
  if type(expires) == 'table' and expires.err then
    redis.call('HDEL', KEYS[1], ARGV[1])
    return expires
  end
  redis.call('ZREM', KEYS[3], ARGV[6])
  redis.call('DEL', KEYS[4])
  return 1
end
local left, way = 0, 0
if free and not turn then
  left, way = redis.call('PTTL', ARGV[8] .. first), 2
elseif not free then
  left = redis.call('PTTL', KEYS[1])
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    -- redquorum's owners begin with a UUID of version 8, Redisson's of version 4.
    if string.sub(fields[i], 15, 15) ~= '8' then
      way = 1
    end
  end
end
-- This is whatever the token: where holders change faster than a command comes from
-- afar, its token is never above the fence before the others wait for it. So a late
-- copy of a command that was released leaves a place, as one does who dies.
if ARGV[7] ~= '0' then
  redis.call('SET', KEYS[4], 1, 'PX', ARGV[7])
  redis.call('ZADD', KEYS[3], ARGV[5], ARGV[6])
  if redis.call('PTTL', KEYS[3]) < tonumber(ARGV[7]) then
    redis.call('PEXPIRE', KEYS[3], ARGV[7])
  end
  before = redis.call('ZRANK', KEYS[3], ARGV[6])
end
if turn then
  return {2, fence}
end
return {0, left, fence, before, way}
