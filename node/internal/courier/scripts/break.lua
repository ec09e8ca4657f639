-- break: remove a lock of any owner.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence
-- KEYS[3]  its queue
-- ARGV[1]  token
-- ARGV[2]  life of the fence, ms
-- ARGV[3]  channel of waiters that have no place in the queue; of the queue, the next
--          waiters are notified
-- ARGV[4]  the same of readers and writers
--
-- Returns 1 (there was a lock) or 0.
--
-- Atomic, because only a hash may be removed, and the message must come after
-- the removal.
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'hash' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. kind .. ' at this name, not a hash')
end
-- It changes nothing. A replica refuses it, as in acquire; and a server that is out of
-- memory refuses nothing after a script's first write.
redis.call('HDEL', KEYS[1], '')
if tonumber(ARGV[1]) > tonumber(redis.call('GET', KEYS[2]) or 0) then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
if kind == 'none' then
  return 0
end
local shared = redis.call('HEXISTS', KEYS[1], 'mode') == 1
redis.call('DEL', KEYS[1])
if shared then
  redis.call('PUBLISH', ARGV[4], '1')
else
  redis.call('PUBLISH', ARGV[3], '0')
end
return notify_next(KEYS[3], KEYS[1]) or 1
