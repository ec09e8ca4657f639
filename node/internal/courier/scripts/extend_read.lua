-- extend_read: raise the life of many readers, each only if it still reads.
--
-- KEYS[2i-1]  a lock, a hash
-- KEYS[2i]    its owner's hold
-- ARGV[1]     life to raise them to, ms
-- ARGV[1+i]   the owner
--
-- Returns a string with one character for each lock: '1' if the owner was a
-- living reader, else '0'.
--
-- Atomic, with a pcall, and never kept without a write, as extend is. The lock is as
-- long-lived as its longest reader, so it is only ever raised.
local ttl = tonumber(ARGV[1])
local kept = {}
local function raise(key)
  local left = redis.call('PTTL', key)
  if left >= 0 and left < ttl then
    redis.call('PEXPIRE', key, ttl)
    return true
  end
end
for i = 1, #KEYS, 2 do
  local n = (i + 1) / 2
  local has = redis.pcall('HEXISTS', KEYS[i], ARGV[1 + n])
  if has == 1 and redis.call('EXISTS', KEYS[i + 1]) == 1 then
    local hold, lock = raise(KEYS[i + 1]), raise(KEYS[i])
    if not hold and not lock then
      redis.call('HDEL', KEYS[i], '')
    end
    kept[n] = '1'
  elseif has == 0 or has == 1 or string.find(has['err'], 'WRONGTYPE', 1, true) then
    kept[n] = '0'
  else
    return has
  end
end
return table.concat(kept)
