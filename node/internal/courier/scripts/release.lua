-- release: end one owner's lock, and refuse its acquire if that comes later.
--
-- KEYS[1]  the lock, a hash
-- KEYS[2]  its fence
-- KEYS[3]  its queue
-- ARGV[1]  owner
-- ARGV[2]  token
-- ARGV[3]  life of the fence, ms
-- ARGV[4]  channel of waiters that have no place in the queue; of the queue, the next
--          waiter is notified
-- ARGV[5]  token with which the lock may be handed over to the first waiter, if the channel
--          has no subscriber; none: it is not
-- ARGV[6]  run_id of the server
--
-- Returns 0 if the owner had no lock, or else 1, and 1 more if a waiter is in the queue, and 2 more
-- if the channel has a subscriber.
--
-- Atomic, because only the owner's lock may be removed, and because the messages must come
-- after the removal and only if the key is gone.
if ARGV[2] ~= '0' and redis.call('GET', KEYS[2]) ~= ARGV[2] then
  raise_fences(1, 3)
end
local released = redis.call('HDEL', KEYS[1], ARGV[1])
local left = released == 1 and redis.call('EXISTS', KEYS[1], KEYS[1], KEYS[3]) or 2 -- 2 and 3: the lock, 1: its queue
if left < 2 then
  local others = redis.call('PUBLISH', ARGV[4], '0')
  local failed, awaited
  if left == 1 then
    failed, awaited = notify_next(KEYS[3], KEYS[1], KEYS[2], false, others == 0 and ARGV[5], ARGV[3], ARGV[6], ARGV[1])
  end
  return failed or 1 + (awaited and 1 or 0) + (others > 0 and 2 or 0)
end
return released
