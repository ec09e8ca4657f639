-- release: end one owner's lock, and refuse its acquire if that comes later.
--
-- KEYS[1]  the lock, a hash
-- KEYS[2]  its fence
-- ARGV[1]  owner
-- ARGV[2]  token
-- ARGV[3]  life of the fence, ms
-- ARGV[4]  channel on which waiters listen
--
-- Returns 1 (released) or 0 (the owner had no lock).
--
-- Atomic, because removing a lock must depend on whose it is, and because the
-- message must come after the removal and only if the key is gone.
if tonumber(ARGV[2]) > tonumber(redis.call('GET', KEYS[2]) or 0) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('PUBLISH', ARGV[4], '0')
end
return 1
