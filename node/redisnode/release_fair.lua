-- release_fair: end one owner's lock, refuse its acquire if that comes later, and
-- leave the queue or go back to it.
--
-- KEYS[1]  the lock, a hash
-- KEYS[2]  its fence
-- KEYS[3]  the queue
-- KEYS[4]  the waiter's place
-- ARGV[1]  owner
-- ARGV[2]  token
-- ARGV[3]  life of the fence, ms
-- ARGV[4]  channel on which those who wait without a place in the queue listen; of
--          the queue, the first who listens is told
-- ARGV[5]  ticket
-- ARGV[6]  waiter
-- ARGV[7]  life of the place that is to be there again if the owner had the lock,
--          ms; 0: the place is given up
--
-- Returns 1 (released) or 0 (the owner had no lock).
--
-- Atomic, because nobody behind may come in between the release and the place,
-- and because the message must come after both, and only if it is of use.
--
-- What changes the queue is a pcall: one of another type has no places, and must not
-- keep the lock.
if tonumber(ARGV[2]) > tonumber(redis.call('GET', KEYS[2]) or 0) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
local left = 0
if ARGV[7] == '0' then
  left = redis.pcall('ZREM', KEYS[3], ARGV[6])
  redis.call('DEL', KEYS[4])
end
local released = redis.call('HDEL', KEYS[1], ARGV[1])
if released == 1 and ARGV[7] ~= '0' and type(redis.pcall('ZADD', KEYS[3], ARGV[5], ARGV[6])) == 'number' then
  redis.call('SET', KEYS[4], 1, 'PX', ARGV[7])
  if redis.call('PTTL', KEYS[3]) < tonumber(ARGV[7]) then
    redis.call('PEXPIRE', KEYS[3], ARGV[7])
  end
end
if redis.call('EXISTS', KEYS[1]) == 0 and (released == 1 or left == 1 and redis.call('EXISTS', KEYS[3]) == 1) then
  redis.call('PUBLISH', ARGV[4], '0')
  tell(KEYS[3], KEYS[1])
end
return released
