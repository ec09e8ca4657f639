-- release_all: end the locks of one owner, each as release does.
--
-- KEYS[2i-1]  a lock, a hash
-- KEYS[2i]    its fence
-- KEYS[2n+i]  its queue
-- ARGV[1]     owner
-- ARGV[2]     token
-- ARGV[3]     life of the fences, ms
-- ARGV[3+i]   channel on which those who wait for the lock without a place in its
--             queue listen; of the queue, the first who listens is told
-- ARGV[4+n]   token with which the locks may be handed on, as by release; none: they
--             are not
-- ARGV[5+n]   id of the server's life
--
-- Returns 1 (released), 2 (released, and somebody is in line for one of them) or 0 (the
-- owner did not have all of them).
--
-- Atomic, because removing a lock must depend on whose it is, and because the
-- message must come after the removal and only if the key is gone.
--
-- HDEL and PUBLISH are pcalls: what is wrong with one key or channel must not keep the
-- other locks.
local n = #KEYS / 3
raise(2 * n, 2)
local released, failed, awaited = 1, nil, false
for i = 1, 2 * n, 2 do
  local removed = redis.pcall('HDEL', KEYS[i], ARGV[1])
  if removed == 1 then
    if redis.call('EXISTS', KEYS[i]) == 0 then
      local said = redis.pcall('PUBLISH', ARGV[3 + (i + 1) / 2], '0')
      local untold, line = tell(KEYS[2 * n + (i + 1) / 2], KEYS[i], KEYS[i + 1], said == 0 and ARGV[4 + n], ARGV[3], ARGV[5 + n])
      failed, awaited = failed or type(said) == 'table' and said or untold, awaited or line
    end
  elseif removed == 0 then
    released = 0
  else
    failed = failed or removed
  end
end
return failed or awaited and 2 * released or released
