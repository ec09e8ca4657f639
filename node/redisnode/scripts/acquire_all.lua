-- acquire_all: create the locks of one owner, all or none; each as acquire does. With a ticket
-- they are created if its waiter is first in every queue, or barges; otherwise places are kept for
-- it in the queues.
--
-- KEYS are two or four for each lock:
--          the lock, a hash
--          its fence, the highest token seen
--          with a ticket: its queue, a sorted set: waiters by their tickets
--          with a ticket: the waiter's place: it is there as long as the place is kept
-- ARGV[1]     owner
-- ARGV[2]     token
-- ARGV[3]     life of the locks, ms
-- ARGV[4]     life of the fences, ms
-- ARGV[5]     ticket; 0: none, and there are no more arguments
-- ARGV[6]     waiter
-- ARGV[7]     life of the places, ms; 0: none is made
-- ARGV[8]     1: the waiter barges, 0: it does not
-- ARGV[9]     with one lock: a token; if it is above the fence the place has a standby
--             claim, and a release may hand the lock on to it
--             with several: 1: places are kept for all locks up to the first in the way,
--             0: for those in the way
-- ARGV[9+i]   with several: the channel of waiters for the lock that have no place
--
-- Returns
--   1                        granted
--   {0, left, fence, ahead,  refused; without a ticket, {0, left, fence}
--    what, last}
--   {2, fence}               stale: the token is not above the fence
--
--   left   ms left, or -1, of the locks in the way, or else of the first waiters' places:
--          the longest
--   fence  the highest of the locks that the owner does not have
--   ahead  how many waiters are before this one, the most of one queue
--   what   is in the way; 0: a lock, or a place that reserves one; 1: a lock that is not
--          redquorum's, or has more than MANY fields; 2: no lock
--   last   the highest ticket in the queues
--
-- Atomic, as acquire is, and because no other may become first in between.
local queued = ARGV[5] ~= '0'
local wanted = {}
for i = 1, #KEYS, queued and 4 or 2 do
  if redis.call('HEXISTS', KEYS[i], ARGV[1]) == 0 then
    wanted[#wanted + 1] = i
  end
end
if #wanted == 0 then
  redis.call('HDEL', KEYS[1], '') -- as acquire does
  return 1
end
local fence, locked, reserved = 0, false, false
local way = {} -- by i: the lock in the way, or the place of the first waiter
for _, i in ipairs(wanted) do
  fence = math.max(fence, tonumber(redis.call('GET', KEYS[i + 1]) or 0))
  local places, first
  if queued then
    -- Dead waiters are removed from the head of the queue. Those behind the first that
    -- lives are removed when they are at the head.
    places = string.sub(KEYS[i + 3], 1, -1 - #ARGV[6])
    local line = redis.pcall('ZRANGE', KEYS[i + 2], 0, 0)
    if line.err then
      return redis.error_reply(line.err .. ': ' .. KEYS[i + 2])
    end
    first = line[1]
    while first and redis.call('EXISTS', places .. first) == 0 do
      redis.call('ZREM', KEYS[i + 2], first)
      first = redis.call('ZRANGE', KEYS[i + 2], 0, 0)[1]
    end
  end
  if redis.call('EXISTS', KEYS[i]) == 1 then
    locked, way[i] = true, KEYS[i]
  elseif first and first ~= ARGV[6] and ARGV[8] == '0' and
    (redis.call('ZRANK', KEYS[i + 2], ARGV[6]) or redis.call('ZCOUNT', KEYS[i + 2], '-inf', ARGV[5])) > 0 then
    way[i] = places .. first
    reserved = reserved or redis.pcall('GET', way[i]) == RESERVES
  end
end
local turn = next(way) == nil
if turn and tonumber(ARGV[2]) > fence then
  local failed = create(wanted)
  if failed then
    return failed
  end
  for k = 1, queued and #wanted or 0 do
    redis.call('ZREM', KEYS[wanted[k] + 2], ARGV[6])
    redis.call('DEL', KEYS[wanted[k] + 3])
  end
  return 1
end
local longest = 0
for _, i in ipairs(wanted) do
  if way[i] and (way[i] == KEYS[i] or not locked) then
    local left = redis.call('PTTL', way[i])
    if left == -1 or longest ~= -1 and left > longest then
      longest = left
    end
  end
end
if not queued then
  return turn and {2, fence} or {0, longest, fence}
end
local reserves = #KEYS > 4 and ARGV[9] == '1'
local before, last, what = 0, 0, (locked or reserved) and 0 or 2
for _, i in ipairs(wanted) do
  if way[i] == KEYS[i] then
    local many = redis.call('HLEN', KEYS[i]) > MANY
    local fields = many and {''} or redis.call('HGETALL', KEYS[i])
    for f = 1, #fields, 2 do
      if string.sub(fields[f], VERSION_AT, VERSION_AT) ~= VERSION then -- it is not redquorum's
        what = 1
      end
    end
  end
  -- This is whatever the token is: if holders change faster than a command travels, the
  -- token of a far away waiter is never above the fence until the others wait for it. So a
  -- late copy of a command that was released leaves a place, as a dead waiter does.
  if ARGV[7] ~= '0' and (way[i] or turn or reserves) then
    local stands = #KEYS == 4 and tonumber(ARGV[9]) > fence
    redis.call('SET', KEYS[i + 3], stands and ARGV[1] .. STANDBY or reserves and RESERVES or WAITS, 'PX', ARGV[7])
    redis.call('ZADD', KEYS[i + 2], ARGV[5], ARGV[6])
    local expires = redis.call('PTTL', KEYS[i + 2]) >= tonumber(ARGV[7]) or redis.pcall('PEXPIRE', KEYS[i + 2], ARGV[7])
    if type(expires) == 'table' then -- as a lock, a queue that would never expire must not stay
      redis.call('ZREM', KEYS[i + 2], ARGV[6])
      redis.call('DEL', KEYS[i + 3])
      return expires
    end
  elseif ARGV[7] ~= '0' then
    -- It cannot have this name because of another, so it leaves it to others. When it asks
    -- again it is back with its ticket, if this name is in its way then.
    redis.call('DEL', KEYS[i + 3])
    if redis.call('ZREM', KEYS[i + 2], ARGV[6]) == 1 and redis.call('EXISTS', KEYS[i + 2]) == 1 then
      redis.call('PUBLISH', ARGV[9 + (i + 3) / 4], '0')
      notify_next(KEYS[i + 2], KEYS[i])
    end
  end
  last = math.max(last, tonumber(redis.call('ZRANGE', KEYS[i + 2], -1, -1, 'WITHSCORES')[2] or 0))
  if way[i] then
    reserves = false -- no lock is kept because of one that sorts before
    before = math.max(before, redis.call('ZRANK', KEYS[i + 2], ARGV[6]) or redis.call('ZCOUNT', KEYS[i + 2], '-inf', ARGV[5]))
  end
end
if turn then
  return {2, fence}
end
return {0, longest, fence, before, what, last}
