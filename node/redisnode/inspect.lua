-- inspect: read all that is stored for one name.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence
--
-- Returns {type, ms left (-1: no expiry, -2: no key), fence, field, value, ...}.
--
-- Atomic, so that the owner and the time left belong to the same lock.
local kind = redis.call('TYPE', KEYS[1])['ok']
local state = {kind, redis.call('PTTL', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or 0)}
if kind == 'hash' then
  for _, text in ipairs(redis.call('HGETALL', KEYS[1])) do
    state[#state + 1] = text
  end
end
return state
