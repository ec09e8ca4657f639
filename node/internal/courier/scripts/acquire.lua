-- acquire: create a lock for one owner.
--
-- KEYS[1]  the lock, a hash
-- KEYS[2]  its fence, the highest token seen
-- ARGV[1]  owner
-- ARGV[2]  token
-- ARGV[3]  life of the lock, ms
-- ARGV[4]  life of the fence, ms
--
-- Returns 1 (granted), {0, ms left or -1, fence} (refused, also by a string), or {2, fence}
-- (stale: the token is not above the fence).
--
-- Atomic, because another client could create the key after the check for it, and because
-- lock and fence must change together: a late copy of this command could take a lock without
-- its fence again.
local there = redis.call('EXISTS', KEYS[1]) == 1
if there and of_lock('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  -- It changes nothing, but a replica refuses it: the lock there is its master's vote.
  redis.call('HDEL', KEYS[1], '')
  return 1
end
local fence = (redis.call('GET', KEYS[2]) or 0) + 0 -- fails if it is no number
if there then
  return {0, redis.call('PTTL', KEYS[1]), fence}
end
if ARGV[2] + 0 <= fence then
  return {2, fence}
end
-- What can fail, for lack of memory or of a right, fails first. And a lock that would
-- never expire must not stay.
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[4])
redis.call('HSET', KEYS[1], ARGV[1], '1')
local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
if type(expires) == 'table' and expires.err then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return expires
end
return 1
