-- rename: give the locks of one owner to another, all or none, in any mode.
--
-- KEYS are two for each lock; of readers and writers there is one lock, with five:
--          the lock, a hash
--          its fence, the highest token seen but for those of readers
--          that of readers
--          the hold of a reader, of the new owner
--          and of the former one
-- ARGV[1]  the new owner
-- ARGV[2]  the former owner
-- ARGV[3]  token
-- ARGV[4]  life to raise the locks to, ms
-- ARGV[5]  life of the fences, ms
-- ARGV[6]  'read', 'write' or '' (exclusive)
--
-- Returns
--   1                the new owner has them already
--   {3, left}        granted; for how long the former owner had them, the longest
--   {0, left, fence} refused: the former owner does not have them; the longest life of the locks
--   {2, fence}       stale: the token is not above the fence
--
-- left is in ms, -1 for ever, -2 if nothing is there.
--
-- Atomic, because nobody may find a lock free in between, and because lock and fence must change
-- together: a late copy of this command could take a lock back that was renamed again.
local mode = ARGV[6]
local step = mode == '' and 2 or 5
local suffix = mode == 'write' and WRITER or ''
local owner, former = ARGV[1] .. suffix, ARGV[2] .. suffix

local function has(i, field, hold)
  local there = redis.call('HEXISTS', KEYS[i], field)
  if there == 1 and mode == 'read' then
    there = redis.call('EXISTS', KEYS[i + hold])
  end
  return there == 1
end

local wanted, there, fence, read, left = {}, true, 0, 0, -2
for i = 1, #KEYS, step do
  if not has(i, owner, 3) then
    wanted[#wanted + 1] = i
    if not has(i, former, 4) then
      there = false
    end
    fence = math.max(fence, tonumber(redis.call('GET', KEYS[i + 1]) or 0) + 0) -- fails if it is no number
    if mode ~= '' then
      read = tonumber(redis.call('GET', KEYS[i + 2]) or 0) + 0
      fence = math.max(fence, mode == 'write' and read or 0)
    end
  end
end
if #wanted == 0 then
  -- It changes nothing, but a replica refuses it: the lock there is its master's vote.
  redis.call('HDEL', KEYS[1], '')
  return 1
end
for _, i in ipairs(wanted) do
  local ms = redis.call('PTTL', there and mode == 'read' and KEYS[i + 4] or KEYS[i])
  if ms == -1 or left ~= -1 and ms > left then
    left = ms
  end
end
if not there then
  return {0, left, fence}
elseif tonumber(ARGV[3]) <= fence then
  return {2, fence}
end

-- What can fail, for lack of memory or of a right, fails first.
for _, i in ipairs(wanted) do
  if mode ~= 'read' then
    redis.call('SET', KEYS[i + 1], ARGV[3], 'PX', ARGV[5])
  elseif tonumber(ARGV[3]) > read then
    redis.call('SET', KEYS[i + 2], ARGV[3], 'PX', ARGV[5])
  end
end
for _, i in ipairs(wanted) do
  if mode == 'read' and left == -1 then
    redis.call('SET', KEYS[i + 3], '1')
  elseif mode == 'read' then
    redis.call('SET', KEYS[i + 3], '1', 'PX', math.max(left, ARGV[4]))
  end
  redis.call('HSET', KEYS[i], owner, '1')
  redis.call('HDEL', KEYS[i], former)
  if mode == 'read' then
    redis.call('DEL', KEYS[i + 4])
  end
  local ms = redis.call('PTTL', KEYS[i])
  if ms >= 0 and ms < tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[i], ARGV[4])
  end
end
return {3, left}
