-- break: remove a lock of any owner, but for one with a higher token: it is younger than the command.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence
-- KEYS[3]  its queue
-- KEYS[4]  the highest token of its readers
-- ARGV[1]  token
-- ARGV[2]  life of the fence, ms
-- ARGV[3]  channel of waiters that have no place in the queue; of the queue, the next
--          waiters are notified
-- ARGV[4]  the same of readers and writers
--
-- Returns 1 (there was a lock), 0, or {2, fence} (stale: the lock has a higher token, up to the fence).
--
-- Atomic, because only a hash may be removed, and only the lock that has the fence, and the message must come
-- after the removal.
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'hash' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. kind .. ' at this name, not a hash')
end
-- It changes nothing. A replica refuses it, as in acquire; and a server that is out of
-- memory refuses nothing after a script's first write.
redis.call('HDEL', KEYS[1], '')
local mode = redis.call('HGET', KEYS[1], 'mode')
local fence = tonumber(redis.call('GET', KEYS[2]) or 0)
local latest = mode == 'read' and math.max(fence, tonumber(redis.call('GET', KEYS[4]) or 0)) or fence
if kind == 'hash' and tonumber(ARGV[1]) < latest then
  return {2, latest}
end
if tonumber(ARGV[1]) > fence then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
if kind == 'none' then
  return 0
end
redis.call('UNLINK', KEYS[1])
if mode then
  redis.call('PUBLISH', ARGV[4], '1')
else
  redis.call('PUBLISH', ARGV[3], '0')
end
return notify_next(KEYS[3], KEYS[1]) or 1
