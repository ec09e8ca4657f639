-- create: creates a lock, for scripts that begin with it.
--
-- It makes owner the owner in mode 'read', 'write' or '' (exclusive) for ttl ms. No living holder
-- is in the way. left is the PTTL of the lock's key, as another reader may have longer. It returns
-- the error if there was one: a lock that would never expire must not stay.
local function create(mode, name, hold, owner, ttl, left)
  if mode == 'read' then
    redis.call('SET', hold, '1', 'PX', ttl)
    redis.call('HSET', name, 'mode', 'read', owner, '1')
  elseif mode == 'write' then
    if left ~= -2 then
      redis.call('DEL', name) -- dead readers
      left = -2
    end
    redis.call('HSET', name, 'mode', 'write', owner .. WRITER, '1')
  else
    redis.call('HSET', name, owner, '1')
  end
  if left == -2 or left >= 0 and left < tonumber(ttl) then
    local expires = redis.pcall('PEXPIRE', name, ttl)
    if type(expires) == 'table' and expires.err then
      if mode == 'read' then
        redis.call('DEL', hold)
      end
      redis.call('HDEL', name, owner)
      if left == -2 then
        redis.call('DEL', name)
      end
      return expires
    end
  end
end

