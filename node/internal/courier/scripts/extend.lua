-- extend: raise the life of many locks, each only if its owner still has it.
--
-- KEYS[i]    a lock, a hash
-- ARGV[1]    life to raise it to, ms
-- ARGV[i+1]  its owner
--
-- Returns a string with one character for each key: '1' if the owner's field
-- was there, else '0'.
--
-- Atomic, because the lock could go to another owner after the field was found, and that
-- would get this one's lease.
--
-- HEXISTS is a pcall: one key of another type has no fields, and must not fail
-- the others. Any other error says nothing about the field, so it is no answer.
-- PEXPIRE's own GT needs Redis 7.
--
-- If the life is long enough, a write changes nothing, but a replica refuses it: the lock
-- there is its master's vote.
local ttl = tonumber(ARGV[1])
local kept = {}
for i, key in ipairs(KEYS) do
  local has = redis.pcall('HEXISTS', key, ARGV[i + 1])
  if has == 1 then
    local left = redis.call('PTTL', key)
    if left >= 0 and left < ttl then
      redis.call('PEXPIRE', key, ttl)
    else
      redis.call('HDEL', key, '')
    end
    kept[i] = '1'
  elseif has == 0 or string.find(has['err'], 'WRONGTYPE', 1, true) then
    kept[i] = '0'
  else
    return has
  end
end
return table.concat(kept)
