-- tell: what the scripts begin with that release a lock. Of those in the queue of a
-- name it tells the first who listens, but for those who were told and have not asked
-- since: they hang, or will come. Dead ones may be before it. It returns the error if
-- it may not tell.
local function tell(queue, name)
  local line = redis.pcall('ZRANGE', queue, 0, 9) -- of another type, it is nobody's
  local places = 'redquorum_place' .. string.sub(queue, #'redquorum_queue' + 1) .. ':'
  for i = 1, #line do
    local process = string.match(line[i], '^[^:]*')
    if redis.pcall('GET', places .. line[i]) == '1' then
      local heard = redis.pcall('PUBLISH', 'redquorum_waiter:' .. process, name)
      if type(heard) == 'table' then
        return heard
      elseif heard > 0 then
        redis.pcall('SET', places .. line[i], 'told', 'KEEPTTL')
        return
      end
    end
  end
end
