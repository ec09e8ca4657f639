-- inspect: read all that is stored for one name.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence
-- KEYS[3]  the highest token of a reader
-- KEYS[4]  a writer's intent
--
-- Returns {type, ms left, fence, highest reader, {the waiter whose intent it is,
-- ms left} or {}, {field, value, ...}}. Of ms left, -1 is no expiry, -2 no key.
--
-- Atomic, so that the owner and the time left belong to the same lock.
local kind = redis.call('TYPE', KEYS[1])['ok']
local function number(key)
  return tonumber(redis.call('GET', key) or 0)
end
local intent, fields = {}, {}
local waiter = redis.call('GET', KEYS[4])
if waiter then
  intent = {waiter, redis.call('PTTL', KEYS[4])}
end
if kind == 'hash' then
  fields = redis.call('HGETALL', KEYS[1])
end
return {kind, redis.call('PTTL', KEYS[1]), number(KEYS[2]), number(KEYS[3]), intent, fields}
