-- KEYS lock, channel; ARGV message, lease ms, writer: 1 released, 0 still held,
-- nil not the writer.
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[3])
if redis.call('HLEN', KEYS[1]) == 1 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[2], ARGV[1])
else
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
return 1
