-- keep_place: keeps a waiter's place in a queue for so many ms, for scripts that begin with it.
-- says is what the place says of the waiter. It returns the error if there was one: as a lock, a
-- queue that would never expire must not stay.
local function keep_place(queue, place, ticket, waiter, ms, says)
  local added = redis.pcall('ZADD', queue, ticket, waiter)
  if type(added) == 'table' then
    return added
  end
  redis.call('SET', place, says, 'PX', ms)
  local expires = redis.call('PTTL', queue) >= tonumber(ms) or redis.pcall('PEXPIRE', queue, ms)
  if type(expires) == 'table' then
    redis.call('ZREM', queue, waiter)
    redis.call('DEL', place)
    return expires
  end
end

