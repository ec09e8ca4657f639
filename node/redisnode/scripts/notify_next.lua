-- notify_next: notifies the next waiter of a name, for scripts that begin with it and
-- release a lock. It is the first in the queue that listens and was not notified since it
-- asked; one that was may hang, or is on its way. Dead waiters may be before it. It returns
-- the error if it may not publish, and whether a waiter is in the queue.
--
-- With a token, the life of the fence, ms, and the server's run_id it hands the lock on to
-- the first waiter, if that listens and has left a standby claim. The key is not there.

-- hand makes owner the owner, and notifies it. It reports whether it did.
local function hand(name, fence, owner, left, channel, token, retention, life)
  if left <= 0 or tonumber(token) <= tonumber(redis.call('GET', fence) or 0) then
    return false
  end
  local created = redis.pcall('HSET', name, owner, '1')
  if type(created) == 'table' then
    return false
  end
  local expires, heard = redis.pcall('PEXPIRE', name, left), nil
  if expires == 1 then
    heard = redis.pcall('PUBLISH', channel, 'grant ' .. owner .. ' ' .. token .. ' ' .. life .. ' ' .. name)
  end
  if type(heard) ~= 'number' or heard == 0 then
    redis.call('DEL', name)
    return false
  end
  redis.call('SET', fence, token, 'PX', retention)
  return true
end

local function notify_next(queue, name, fence, token, retention, life)
  local line = redis.pcall('ZRANGE', queue, 0, MAX_TOLD - 1) -- a key of another type has no waiters
  local places = PLACE .. string.sub(queue, #QUEUE + 1) .. ':'
  local first = true
  for i = 1, #line do
    local place = places .. line[i]
    local says = redis.pcall('GET', place)
    if type(says) == 'string' then
      local channel = WAITER .. process(line[i])
      if token and first and string.sub(says, -#STANDBY) == STANDBY and
        hand(name, fence, says, redis.call('PTTL', place), channel, token, retention, life) then
        redis.call('ZREM', queue, line[i])
        redis.call('DEL', place)
        break
      end
      first = false
      if says ~= TOLD then
        local heard = redis.pcall('PUBLISH', channel, 'turn ' .. line[i] .. ' ' .. name)
        if type(heard) == 'table' then
          return heard, true
        elseif heard > 0 then
          redis.pcall('SET', place, TOLD, 'KEEPTTL')
          break
        end
      end
    end
  end
  return nil, #line > 0
end
