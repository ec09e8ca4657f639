-- downgrade: make a reader of the writer.
--
-- KEYS[1]  the lock, a hash
-- KEYS[2]  the owner's hold as a reader
-- KEYS[3]  its queue
-- ARGV[1]  owner
-- ARGV[2]  channel of waiters that have no place in the queue; of the queue, the readers that
--          are next are notified
--
-- Returns '1' if the owner was the writer or is a living reader, else '0'.
--
-- Atomic, because no other writer may come in between.
if redis.call('HDEL', KEYS[1], ARGV[1] .. WRITER) == 0 then
  if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 and redis.call('EXISTS', KEYS[2]) == 1 then
    return '1'
  end
  return '0'
end
redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[1], '1')
local left = redis.call('PTTL', KEYS[1])
if left >= 0 then
  redis.call('SET', KEYS[2], '1', 'PX', math.max(left, 1))
else
  redis.call('SET', KEYS[2], '1')
end
redis.call('PUBLISH', ARGV[2], '1')
return notify_next(KEYS[3], KEYS[1], nil, true) or '1'
