-- release_all: end the locks of one owner, and refuse its acquire if that comes later. With
-- a ticket its waiter also leaves the queues, with its offer, or goes back to them.
--
-- KEYS[4i-3]  a lock, a hash
-- KEYS[4i-2]  its fence
-- KEYS[4i-1]  its queue
-- KEYS[4i]    the waiter's place
-- ARGV[1]     owner
-- ARGV[2]     token
-- ARGV[3]     life of the fences, ms
-- ARGV[4]     'read' or 'write' (which are the same here, and of one lock) or '' (exclusive)
-- ARGV[5]     ticket; 0: none, and the places are left alone
-- ARGV[6]     waiter
-- ARGV[7]     with a ticket, the life of the place that is to be there again if the owner
--             had the lock, ms; 0: the place is given up
-- ARGV[7+i]   channel of waiters that have no place in the queue of the lock; of the queue,
--             the next waiters are notified
-- ARGV[8+n]   token with which the locks may be handed over, as by release; none: they
--             are not
-- ARGV[9+n]   run_id of the server
--
-- Returns 0 if the owner did not have all of them, or else 1, and 1 more if a waiter is in one of
-- the queues of those that nobody has now, and 2 more if one of the channels has a subscriber.
--
-- A reader or writer is removed as both, as a downgrade may have come or not.
--
-- Atomic, because no waiter behind may come between the release and the place, because the end of
-- a lock depends on its other owners, and because the messages must come after all that.
--
-- HDEL, PUBLISH and what changes a queue are pcalls: an error at one key or channel must
-- not keep the other locks, and a queue of another type has no places.
local n, shared = #KEYS / 4, ARGV[4] ~= ''
local leaves = ARGV[5] ~= '0' and ARGV[7] == '0'

-- remove ends what an owner has at a name. It returns 1 if there was anything, 0, or the error;
-- whether it was the writer; and whether nobody has the name now.
local function remove(name, owner)
  local removed = redis.pcall('HDEL', name, owner)
  if not shared or type(removed) == 'table' then
    return removed, false, redis.call('EXISTS', name) == 0
  end
  local holds = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
  redis.call('DEL', holds .. ':' .. owner .. HOLD .. '1')
  local wrote = redis.call('HDEL', name, owner .. WRITER) == 1
  if not wrote and (removed == 0 or redis.call('HGET', name, 'mode') ~= 'read') then
    return removed, false, redis.call('EXISTS', name) == 0
  end
  local longest, longer = reap_dead_readers(name, holds)
  if not longest then
    redis.call('DEL', name)
    return 1, wrote, true
  end
  if wrote then
    redis.call('HSET', name, 'mode', 'read')
  end
  if not longer then
    redis.call('PEXPIRE', name, longest)
  end
  return 1, wrote, false
end

raise_fences(#KEYS, 4)
local released, failed, awaited, others = 1, nil, false, false
for i = 1, #KEYS, 4 do
  local name, queue = KEYS[i], KEYS[i + 2]
  local left = 0
  if leaves then
    left = redis.pcall('ZREM', queue, ARGV[6])
    redis.call('DEL', KEYS[i + 3])
  end
  local removed, wrote, gone = remove(name, ARGV[1])
  if removed == 0 and leaves then
    removed, wrote, gone = remove(name, ARGV[1] .. OFFER)
  end
  if removed == 0 then
    released = 0
  elseif removed ~= 1 then
    failed = failed or removed
  elseif ARGV[7] ~= '0' and type(redis.pcall('ZCARD', queue)) == 'number' then
    local bad = keep_place(queue, KEYS[i + 3], ARGV[5], ARGV[6], ARGV[7], WAITS)
    failed = failed or bad
  end
  local said = 0
  if removed == 1 and (gone or wrote) then
    said = redis.pcall('PUBLISH', ARGV[7 + (i + 3) / 4], wrote and '1' or '0')
    failed = failed or type(said) == 'table' and said
    others = others or said ~= 0
  end
  if (removed == 1 or left == 1) and redis.call('EXISTS', queue) == 1 and
    (gone or redis.pcall('HGET', name, 'mode') == 'read') then
    local token = removed == 1 and ARGV[8 + n]
    if token and shared then
      -- Of readers the highest token of those that leave is used, whatever their order is here. It
      -- is kept as long as some are left. Tokens are microseconds: one that is further ahead than
      -- clocks may differ, which fences outlive, is somebody else's.
      local key = NEXT .. string.sub(queue, #QUEUE + 1)
      local said = redis.pcall('GET', key)
      local highest = type(said) == 'string' and tonumber(string.match(said, '^%d+$') or 0) or 0
      if highest > tonumber(token) and highest <= tonumber(token) + 1000 * ARGV[3] then
        token = string.format('%.0f', highest)
      end
      if gone then
        redis.call('DEL', key)
      else
        redis.call('SET', key, token, 'PX', math.max(redis.call('PTTL', name), 1))
      end
    end
    local untold, line = notify_next(queue, name, KEYS[i + 1], not gone, gone and said == 0 and token, ARGV[3], ARGV[9 + n], ARGV[1])
    failed, awaited = failed or untold, awaited or gone and removed == 1 and line
  end
end
return failed or released * (1 + (awaited and 1 or 0) + (others and 2 or 0))
