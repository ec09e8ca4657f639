-- release_all: end the locks of one owner, and refuse its acquire if that comes later. With
-- a ticket its waiter also leaves the queues, with its standby claim, or goes back to them.
--
-- KEYS[4i-3]  a lock, a hash
-- KEYS[4i-2]  its fence
-- KEYS[4i-1]  its queue
-- KEYS[4i]    the waiter's place
-- ARGV[1]     owner
-- ARGV[2]     token
-- ARGV[3]     life of the fences, ms
-- ARGV[4]     ticket; 0: none, and the places are left alone
-- ARGV[5]     waiter
-- ARGV[6]     with a ticket, the life of the place that is to be there again if the owner
--             had the lock, ms; 0: the place is given up
-- ARGV[6+i]   channel of waiters that have no place in the queue of the lock; of the queue,
--             the next waiter is notified
-- ARGV[7+n]   token with which the locks may be handed on, as by release; none: they
--             are not
-- ARGV[8+n]   run_id of the server
--
-- Returns 0 if the owner did not have all of them, or else 1, and 1 more if a waiter is in one of
-- the queues, and 2 more if one of the channels has a subscriber.
--
-- Atomic, because no waiter behind may come between the release and the place, and because
-- the message must come after both, and only if it is of use.
--
-- HDEL, PUBLISH and what changes a queue are pcalls: an error at one key or channel must
-- not keep the other locks, and a queue of another type has no places.
local n = #KEYS / 4
local leaves = ARGV[4] ~= '0' and ARGV[6] == '0'
raise_fences(#KEYS, 4)
local released, failed, awaited, others = 1, nil, false, false
for i = 1, #KEYS, 4 do
  local left = 0
  if leaves then
    left = redis.pcall('ZREM', KEYS[i + 2], ARGV[5])
    redis.call('DEL', KEYS[i + 3])
  end
  local removed = redis.pcall('HDEL', KEYS[i], ARGV[1])
  if removed == 0 and leaves then
    removed = redis.call('HDEL', KEYS[i], ARGV[1] .. STANDBY)
  end
  if removed == 0 then
    released = 0
  elseif removed ~= 1 then
    failed = failed or removed
  elseif ARGV[6] ~= '0' and type(redis.pcall('ZADD', KEYS[i + 2], ARGV[4], ARGV[5])) == 'number' then
    redis.call('SET', KEYS[i + 3], WAITS, 'PX', ARGV[6])
    local expires = redis.call('PTTL', KEYS[i + 2]) >= tonumber(ARGV[6]) or redis.pcall('PEXPIRE', KEYS[i + 2], ARGV[6])
    if type(expires) == 'table' then -- as a lock, a queue that would never expire must not stay
      redis.call('ZREM', KEYS[i + 2], ARGV[5])
      redis.call('DEL', KEYS[i + 3])
      failed = failed or expires
    end
  end
  if redis.call('EXISTS', KEYS[i]) == 0 and (removed == 1 or left == 1 and redis.call('EXISTS', KEYS[i + 2]) == 1) then
    local said = redis.pcall('PUBLISH', ARGV[6 + (i + 3) / 4], '0')
    local untold, line = notify_next(KEYS[i + 2], KEYS[i], KEYS[i + 1], removed == 1 and said == 0 and ARGV[7 + n], ARGV[3], ARGV[8 + n])
    failed, awaited = failed or type(said) == 'table' and said or untold, awaited or line
    others = others or said ~= 0
  end
end
return failed or released * (1 + (awaited and 1 or 0) + (others and 2 or 0))
