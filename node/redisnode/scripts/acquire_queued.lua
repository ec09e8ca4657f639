-- acquire_queued: create the locks of one owner, all or none, if it is the waiter's turn
-- in every line, or if the waiter barges; or keep the waiter places in the queues.
--
-- KEYS[4i-3]  a lock, a hash
-- KEYS[4i-2]  its fence, the highest token seen
-- KEYS[4i-1]  its queue, a sorted set: waiters by their tickets
-- KEYS[4i]    the waiter's place: it is there as long as the place is kept
-- ARGV[1]     owner
-- ARGV[2]     token
-- ARGV[3]     life of the locks, ms
-- ARGV[4]     life of the fences, ms
-- ARGV[5]     ticket
-- ARGV[6]     waiter
-- ARGV[7]     life of the places, ms; 0: none is made
-- ARGV[8]     1: the waiter barges, 0: it does not
-- ARGV[9]     of one lock: a token; if it is above the fence, the place names the owner's
--             heir, to whom a release may hand the lock on; of several: 1: a place is kept
--             for each of them up to the first in the way, 0: for what is in the way
-- ARGV[9+i]   of several: the channel of those who wait for the lock without a place
--
-- Returns 1 (granted), {0, ms left or -1, fence, waiters before this one at most,
-- what is in the way, the highest ticket in the queues} (refused: ms left of the locks in
-- the way, or else of the places of those before, the longest; in the way is 0: a lock, or
-- the place of one who reserves it, 1: a lock of another make, or what has too many fields
-- to be looked at each time, 2: no lock), or {2, fence} (stale: the token is not above the
-- fence of a lock that is to be created). The fence is the highest of these.
--
-- Atomic, as acquire is, and because the turn must not pass in between.
local wanted = {}
for i = 1, #KEYS, 4 do
  if redis.call('HEXISTS', KEYS[i], ARGV[1]) == 0 then
    wanted[#wanted + 1] = i
  end
end
if #wanted == 0 then
  redis.call('HDEL', KEYS[1], '') -- as acquire does
  return 1
end
local fence, locked, reserved = 0, false, false
local way = {} -- of what is not to be had: the lock, or the place of the first before
for _, i in ipairs(wanted) do
  fence = math.max(fence, tonumber(redis.call('GET', KEYS[i + 1]) or 0))
  -- Who did not ask again in time is gone. Those behind the first may stay: they
  -- are seen to when they are first.
  local places = string.sub(KEYS[i + 3], 1, -1 - #ARGV[6])
  local line = redis.pcall('ZRANGE', KEYS[i + 2], 0, 0)
  if line.err then
    return redis.error_reply(line.err .. ': ' .. KEYS[i + 2])
  end
  local first = line[1]
  while first and redis.call('EXISTS', places .. first) == 0 do
    redis.call('ZREM', KEYS[i + 2], first)
    first = redis.call('ZRANGE', KEYS[i + 2], 0, 0)[1]
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
  for _, i in ipairs(wanted) do
    redis.call('ZREM', KEYS[i + 2], ARGV[6])
    redis.call('DEL', KEYS[i + 3])
  end
  return 1
end
local reserves = #KEYS > 4 and ARGV[9] == '1'
local longest, before, last, what = 0, 0, 0, (locked or reserved) and 0 or 2
for _, i in ipairs(wanted) do
  if way[i] and (way[i] == KEYS[i] or not locked) then
    local left = redis.call('PTTL', way[i])
    if left == -1 or longest ~= -1 and left > longest then
      longest = left
    end
  end
  if way[i] == KEYS[i] then
    local many = redis.call('HLEN', KEYS[i]) > MANY
    local fields = many and {''} or redis.call('HGETALL', KEYS[i])
    for f = 1, #fields, 2 do
      if string.sub(fields[f], VERSION_AT, VERSION_AT) ~= VERSION then -- it is not redquorum's
        what = 1
      end
    end
  end
  -- This is whatever the token: where holders change faster than a command comes from
  -- afar, its token is never above the fence before the others wait for it. So a late
  -- copy of a command that was released leaves a place, as one does who dies.
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
    -- For want of another name it cannot have this one, and so it leaves it to others.
    -- When it asks again it is back, with its ticket, if this name is in its way then.
    redis.call('DEL', KEYS[i + 3])
    if redis.call('ZREM', KEYS[i + 2], ARGV[6]) == 1 and redis.call('EXISTS', KEYS[i + 2]) == 1 then
      redis.call('PUBLISH', ARGV[9 + (i + 3) / 4], '0')
      notify_next(KEYS[i + 2], KEYS[i])
    end
  end
  last = math.max(last, tonumber(redis.call('ZRANGE', KEYS[i + 2], -1, -1, 'WITHSCORES')[2] or 0))
  if way[i] then
    reserves = false -- it keeps none for want of one that comes before
    before = math.max(before, redis.call('ZRANK', KEYS[i + 2], ARGV[6]) or redis.call('ZCOUNT', KEYS[i + 2], '-inf', ARGV[5]))
  end
end
if turn then
  return {2, fence}
end
return {0, longest, fence, before, what, last}
