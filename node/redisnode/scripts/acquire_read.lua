-- acquire_read: let one owner read, once for each token.
--
-- KEYS[1]  the lock, a hash
-- KEYS[2]  its fence, the highest token of a writer, or of what was released
-- KEYS[3]  the highest token of a reader
-- KEYS[4]  whose turn it is: a writer's intent, which keeps readers out; READERS; or what
--          begins with NOT, for some writers
-- KEYS[5]  the owner's hold: it is there as long as the owner may read
-- ARGV[1]  owner
-- ARGV[2]  token
-- ARGV[3]  life of the hold, ms
-- ARGV[4]  life of the fences, ms
-- ARGV[5]  if a writer is in the way, for how long it is the readers' turn, ms, but not
--          longer than its lock lives; 0: it is not
--
-- Returns
--   1                         granted
--   {0, ms left or -1, fence} refused: ms left of the lock, or else of the intent
--   {2, fence}                stale: the token is not above the fence
--
-- Atomic, because a writer could come after the check for one, and because the fences must
-- change with the lock.
local mode = redis.call('HGET', KEYS[1], 'mode')
local reading = mode == 'read'
if reading and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 and redis.call('EXISTS', KEYS[5]) == 1 then
  redis.call('HDEL', KEYS[1], '') -- as acquire does
  return 1
end
local fence = tonumber(redis.call('GET', KEYS[2]) or 0) + 0 -- fails if it is no number
if not reading and redis.call('EXISTS', KEYS[1]) == 1 then
  local left, patience = redis.call('PTTL', KEYS[1]), tonumber(ARGV[5])
  if mode == 'write' and patience > 0 then
    redis.call('SET', KEYS[4], READERS, 'PX', left == -1 and patience or math.max(math.min(left, patience), 1))
  end
  return {0, left, fence}
end
local left = redis.call('PTTL', KEYS[4])
if left ~= -2 then
  local intent = redis.pcall('GET', KEYS[4])
  if type(intent) ~= 'string' or intent ~= READERS and string.sub(intent, 1, #NOT) ~= NOT then
    return {0, left, fence}
  end
end
if tonumber(ARGV[2]) <= fence then
  return {2, fence}
end
if tonumber(ARGV[2]) > tonumber(redis.call('GET', KEYS[3]) or 0) then
  redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[4])
end
redis.call('SET', KEYS[5], '1', 'PX', ARGV[3])
left = 0
if reading then
  left = redis.call('PTTL', KEYS[1]) -- another reader may have longer
end
redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[1], '1')
if left >= 0 and left < tonumber(ARGV[3]) then
  local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
  if type(expires) == 'table' and expires.err then
    redis.call('DEL', KEYS[5])
    redis.call('HDEL', KEYS[1], ARGV[1])
    if not reading then
      redis.call('HDEL', KEYS[1], 'mode')
    end
    return expires
  end
end
return 1
