-- tell: what the scripts begin with that release a lock. Of those in the queue of a
-- name it tells the first who listens; dead ones may be before it.
local function tell(queue, name)
  local line = redis.pcall('ZRANGE', queue, 0, 9) -- of another type, it is nobody's
  for i = 1, #line do
    local process = string.match(line[i], '^[^:]*')
    if redis.call('PUBLISH', 'redquorum_waiter:' .. process, name) > 0 then
      return
    end
  end
end
