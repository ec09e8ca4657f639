-- release_shared: end what one owner has of a lock of readers and writers, and
-- refuse its acquire if that comes later.
--
-- KEYS[1]  the lock, a hash
-- KEYS[2]  its fence
-- KEYS[3]  whose turn it is: a writer's intent; READERS; NOT and a process, for the
--          writers of others; or that and a waiter of the process
-- KEYS[4]  the owner's hold as a reader
-- ARGV[1]  owner
-- ARGV[2]  token
-- ARGV[3]  life of the fence, ms
-- ARGV[4]  channel on which waiters listen
-- ARGV[5]  what the keys of the readers' holds begin with
-- ARGV[6]  waiter, or nothing
-- ARGV[7]  life of the waiter's intent, ms; 0: it is removed
-- ARGV[8]  for how long waiters may come before others write, ms
--
-- Returns 1 (released) or 0 (the owner had nothing).
--
-- The owner is removed as reader and as writer, as a downgrade may have come or not.
-- Redisson's messages are "0" when the last reader has gone, and "1", which also wakes
-- readers, when the writer has.
--
-- Atomic, because the end of the lock depends on its other owners, and because the message
-- must come after it.
raise_fences(1, 4)
local message
local intent = redis.pcall('GET', KEYS[3]) -- a key of another type is nobody's turn
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
