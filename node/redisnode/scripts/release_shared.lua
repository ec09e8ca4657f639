-- release_shared: end what one owner has of a lock of readers and writers, and
-- refuse its acquire if that comes later.
--
-- KEYS[1]  the lock, a hash
-- KEYS[2]  its fence
-- KEYS[3]  a writer's intent; or 'readers' when it is theirs to come next; or 'not:' and a
--          process when it is for writers of others; or that and a waiter of it
-- KEYS[4]  the owner's hold as a reader
-- ARGV[1]  owner
-- ARGV[2]  token
-- ARGV[3]  life of the fence, ms
-- ARGV[4]  channel on which waiters listen
-- ARGV[5]  what the keys of the readers' holds begin with
-- ARGV[6]  waiter, or nothing
-- ARGV[7]  how long the waiter's intent is to stand, ms; 0: no longer
-- ARGV[8]  for how long it is the turn of those that wait to come, ms
--
-- Returns 1 (released) or 0 (the owner had nothing).
--
-- The owner is taken for reader and writer, for a downgrade may have come or not.
-- Redisson's messages are "0" when the last reader has gone, and "1", which wakes
-- readers as well, when the writer has.
--
-- Atomic, because what becomes of the lock depends on who else has it, and
-- because the message must come after that.
raise_fences(1, 4)
local message
local intent = redis.pcall('GET', KEYS[3]) -- of another type, it is nobody's
if ARGV[6] ~= '' and ARGV[7] == '0' and intent == ARGV[6] then
  redis.call('DEL', KEYS[3])
  intent = false
  message = '1'
elseif ARGV[6] ~= '' and ARGV[7] == '0' and intent == NOT .. ARGV[6] then
  local left = redis.call('PTTL', KEYS[3])
  if left > 0 then
    redis.call('SET', KEYS[3], NOT .. process(ARGV[6]), 'PX', left)
  end
end
local mode = redis.call('HGET', KEYS[1], 'mode')
local wrote = redis.call('HDEL', KEYS[1], ARGV[1] .. WRITER)
local released = math.max(wrote, redis.call('HDEL', KEYS[1], ARGV[1]))
redis.call('DEL', KEYS[4])
if wrote == 1 then
  message = '1'
  if ARGV[7] ~= '0' then -- it has not had its turn
    redis.call('SET', KEYS[3], ARGV[6], 'PX', ARGV[7])
  elseif intent == READERS then
    redis.call('PEXPIRE', KEYS[3], ARGV[8])
  end
end
if wrote == 1 or released == 1 and mode == 'read' then
  local longest, longer = reap_dead_readers(KEYS[1], ARGV[5])
  if not longest then
    redis.call('DEL', KEYS[1])
    message = message or '0'
    if wrote == 0 and intent == READERS then
      redis.call('DEL', KEYS[3]) -- they have come
    end
  else
    if wrote == 1 then
      redis.call('HSET', KEYS[1], 'mode', 'read')
    end
    if not longer then
      redis.call('PEXPIRE', KEYS[1], longest)
    end
  end
end
if (wrote == 1 or ARGV[6] ~= '') and ARGV[7] == '0' and ARGV[8] ~= '0' and type(intent) == 'string' and intent ~= READERS then
  local own = process(ARGV[1])
  if process(intent) ~= own and string.sub(intent, 1, #NOT) ~= NOT and redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('SET', KEYS[3], NOT .. own, 'PX', ARGV[8])
  end
end
if message then
  redis.call('PUBLISH', ARGV[4], message)
end
return released
