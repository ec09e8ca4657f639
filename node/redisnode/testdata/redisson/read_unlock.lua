-- KEYS lock, channel, the reader's holds, all holds; ARGV message, reader: 1
-- released, 0 still held, nil not a reader.
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return nil end
local count = redis.call('HINCRBY', KEYS[1], ARGV[2], -1)
if count == 0 then redis.call('HDEL', KEYS[1], ARGV[2]) end
redis.call('DEL', KEYS[3] .. ':' .. (count + 1))
if redis.call('HLEN', KEYS[1]) > 1 then
  local longest = -3
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    for hold = 1, tonumber(redis.call('HGET', KEYS[1], field)) or 0 do
      longest = math.max(longest, redis.call('PTTL', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. hold))
    end
  end
  if longest > 0 then
    redis.call('PEXPIRE', KEYS[1], longest)
    return 0
  end
  if redis.call('HGET', KEYS[1], 'mode') == 'write' then return 0 end
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], ARGV[1])
return 1
