-- acquire_all: create the locks of one owner, all or none; each as acquire does.
--
-- KEYS[2i-1]  a lock, a hash
-- KEYS[2i]    its fence, the highest token seen
-- ARGV[1]     owner
-- ARGV[2]     token
-- ARGV[3]     life of the locks, ms
-- ARGV[4]     life of the fences, ms
--
-- Returns
--   1                         granted
--   {0, ms left or -1, fence} refused: the longest life of the locks in the way
--   {2, fence}                stale: the token is not above the fence of a lock to create
-- The fence is the highest of all.
--
-- Atomic, because another client could create the key after the check for it, and because
-- lock and fence must change together: a late copy of this command could take a lock without
-- its fence again.
local token = tonumber(ARGV[2])
local free, refused, left = {}, false, 0
for i = 1, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 0 then
    free[#free + 1] = i
  elseif redis.call('HEXISTS', KEYS[i], ARGV[1]) == 0 then
    refused = true
    local ttl = redis.call('PTTL', KEYS[i])
    if ttl == -1 or left ~= -1 and ttl > left then
      left = ttl
    end
  end
end
if not refused and #free == 0 then
  redis.call('HDEL', KEYS[1], '') -- as acquire does
  return 1
end
local highest, stale, next = 0, false, 1
for i = 1, #KEYS, 2 do
  local fence = tonumber(redis.call('GET', KEYS[i + 1]) or 0)
  highest = math.max(highest, fence)
  if free[next] == i then
    stale = stale or token <= fence
    next = next + 1
  end
end
if refused then
  return {0, left, highest}
end
if stale then
  return {2, highest}
end
return create(free) or 1
