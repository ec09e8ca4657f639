-- KEYS lock, the reader's holds; ARGV lease ms, reader, writer: nil when
-- acquired, else the lock's PTTL.
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
  redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[2], 1)
  redis.call('SET', KEYS[2] .. ':1', 1, 'PX', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return nil
end
if mode == 'read' or redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1 then
  local hold = redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('SET', KEYS[2] .. ':' .. hold, 1, 'PX', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[1]))
  return nil
end
return redis.call('PTTL', KEYS[1])
