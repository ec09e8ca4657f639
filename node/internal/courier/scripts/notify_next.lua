-- notify_next: notifies the next waiters of a name, for scripts that begin with it, when the key
-- is gone or, with shared, when only readers have the name: the first in the queue, or all readers
-- up to the first waiter that is none. A waiter that does not listen, or was notified since it
-- asked, is passed over: it may hang, or is on its way. Dead waiters may be before it.
--
-- With a token, the life of the fence, ms, the server's run_id and the owner that has released it hands the lock over to them
-- if they listen and have left an offer, but not that owner's; and not past a waiter that was passed over and
-- does not read.
--
-- It returns the error if it may not publish, and whether a waiter is in the queue. What it needs is
-- inside, as most releases do not call it.
local function notify_next(queue, name, fence, shared, token, retention, life, released)
--include constants
--include create

  local suffix = string.sub(queue, #QUEUE + 1)
  local readers = READERS .. suffix
  local holds = string.find(name, '{', 1, true) and name or '{' .. name .. '}'

  local function token_at(key) -- nil if it cannot be read: others must hear of a release all the same
    local token = redis.pcall('GET', key)
    return not token and 0 or type(token) == 'string' and tonumber(token) or nil
  end

  -- hand makes the owner of an offer the owner, for as long as its place was kept, and tells
  -- its waiter, with a proof by the secret of the offer. It reports whether it did.
  local function hand(mode, owner, secret, left, channel)
    local seen, read = token_at(fence), token_at(readers)
    if not seen or not read or left <= 0 or tonumber(token) <= seen or mode ~= 'read' and tonumber(token) <= read then
      return false
    end
    local hold = holds .. ':' .. owner .. HOLD .. '1'
    if mode == 'read' and redis.call('EXISTS', hold) == 1 then
      return true -- it reads already, and a late command has left the place
    end
    local before = redis.call('PTTL', name)
    local created, failed = pcall(create, mode, name, hold, owner, left, before)
    local heard
    if created and not failed then
      local proof = redis.sha1hex(secret .. ' ' .. token .. ' ' .. life .. ' ' .. secret)
      local message = table.concat({'grant', owner, token, life, proof, name}, ' ')
      heard = redis.pcall('PUBLISH', channel, message)
    end
    if type(heard) == 'number' and heard > 0 then
      if mode ~= 'read' then
        redis.call('SET', fence, token, 'PX', retention)
      elseif tonumber(token) > read then
        redis.call('SET', readers, token, 'PX', retention)
      end
      return true
    end
    if mode == 'read' then
      redis.call('DEL', hold)
    end
    if before == -2 then
      redis.call('DEL', name)
    else
      redis.call('HDEL', name, owner)
      if before > 0 then
        redis.call('PEXPIRE', name, before)
      end
    end
    return false
  end

  local at, seen, awaited, passed = 0, 0, false, false
  repeat
    local line = redis.pcall('ZRANGE', queue, at, at + MAX_TOLD - 1) -- a key of another type has no waiters
    awaited, seen = awaited or #line > 0, seen + #line
    for i = 1, #line do
      local waiter = line[i]
      local mode = string.sub(waiter, -#READER) == READER and 'read' or string.sub(waiter, -#WRITER) == WRITER and 'write' or ''
      if shared and mode ~= 'read' then
        return nil, awaited
      end
      local place = PLACE .. suffix .. ':' .. waiter
      local says, channel = redis.pcall('GET', place), WAITER .. string.match(waiter, '^[^:]*')
      local next, owner, secret = false, nil, nil
      if type(says) == 'string' and token and not passed then
        owner, secret = string.match(says, '^(%S*' .. OFFER .. ') (%w+)$')
      end
      if owner and owner ~= released and hand(mode, owner, secret, redis.call('PTTL', place), channel) then
        redis.call('ZREM', queue, waiter)
        redis.call('DEL', place)
        next = true
      else
        at = at + 1
        if type(says) == 'string' and says ~= TOLD then
          local heard = redis.pcall('PUBLISH', channel, 'turn ' .. waiter .. ' ' .. name)
          if type(heard) == 'table' then
            return heard, awaited
          elseif heard > 0 then
            redis.pcall('SET', place, TOLD, 'KEEPTTL')
            next = true
          end
        end
        passed = passed or type(says) == 'string' and mode ~= 'read'
      end
      if next and mode ~= 'read' then
        return nil, awaited
      end
      shared = shared or next
    end
  until not shared or #line < MAX_TOLD or seen >= MAX_GROUP
  return nil, awaited
end

