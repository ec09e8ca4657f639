-- acquire_write: let one owner write, once for each token; or note that a waiter wants to.
--
-- KEYS[1]  the lock, a hash
-- KEYS[2]  its fence, the highest token of a writer, or of what was released
-- KEYS[3]  the highest token of a reader
-- KEYS[4]  whose turn it is: a writer's intent; READERS; NOT and a process, for the
--          writers of others; or that and a waiter of the process
-- ARGV[1]  the writer's field: owner:write
-- ARGV[2]  token
-- ARGV[3]  life of the lock, ms
-- ARGV[4]  life of the fence, ms
-- ARGV[5]  what the keys of the readers' holds begin with
-- ARGV[6]  waiter
-- ARGV[7]  life of the waiter's intent, ms; 0: it leaves none
--
-- Returns
--   1                         granted
--   {0, ms left or -1, fence} refused: ms left of the lock, or else of KEYS[4]
--   {2, fence}                stale: the token is not above both fences
-- The fence is the higher of the two.
--
-- Atomic, because a reader could come after the check for readers, and because lock and
-- fence must change together.
local mode = redis.call('HGET', KEYS[1], 'mode')
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HDEL', KEYS[1], '') -- as acquire does
  return 1
end
local token = tonumber(ARGV[2])
local fence = tonumber(redis.call('GET', KEYS[2]) or 0)
local highest = math.max(fence, tonumber(redis.call('GET', KEYS[3]) or 0))
local there = redis.call('EXISTS', KEYS[1]) == 1
local waits = ARGV[7] ~= '0' and token ~= fence -- its own release raises the fence to the token
if there and (mode ~= 'read' or reap_dead_readers(KEYS[1], ARGV[5])) then
  if waits and (mode == 'read' or mode == 'write' and redis.pcall('GET', KEYS[4]) ~= READERS) then
    redis.call('SET', KEYS[4], ARGV[6], 'PX', ARGV[7])
  end
  return {0, redis.call('PTTL', KEYS[1]), highest}
end
-- What can fail, for lack of memory or of a right, or by the type of a key, fails first.
-- And a lock that would never expire must not stay.
local intent = redis.call('GET', KEYS[4])
local excluded = intent and string.match(intent, '^' .. NOT .. '([^:]*)')
if intent == READERS or excluded and excluded == process(ARGV[1]) then
  local left = redis.call('PTTL', KEYS[4])
  if excluded and waits and left > 0 then
    redis.call('SET', KEYS[4], NOT .. ARGV[6], 'PX', left)
  end
  return {0, left, highest}
end
if token <= highest then
  if waits and not excluded then -- or readers come and go, and raise the fence before it asks again
    redis.call('SET', KEYS[4], ARGV[6], 'PX', ARGV[7])
  end
  return {2, highest}
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[4])
if there then
  redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[1], '1')
local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
if type(expires) == 'table' and expires.err then
  redis.call('DEL', KEYS[1])
  return expires
end
local waiter = excluded and string.match(intent, '^' .. NOT .. '(.*:.*)')
if waiter and ARGV[7] ~= '0' then
  redis.call('SET', KEYS[4], waiter, 'PX', ARGV[7])
elseif excluded or intent == ARGV[6] then
  redis.call('DEL', KEYS[4])
end
return 1
