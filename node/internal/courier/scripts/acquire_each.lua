-- acquire_each: create locks of many owners, each as acquire does by itself.
--
-- KEYS[i]       a lock, a hash; of n locks, no two are one
-- KEYS[n+i]     its fence, the highest token seen
-- ARGV[1]       life of the locks, ms
-- ARGV[2]       life of the fences, ms
-- ARGV[2i+1]    owner
-- ARGV[2i+2]    token
--
-- Returns what acquire returns for each, as a list. It fails as a whole before it has
-- written anything, if it cannot read a fence or the first write is refused.
local unpack = table.unpack or unpack -- Lua 5.4 has the one, Redis the other
local n = #KEYS / 2
local fences = redis.call('MGET', unpack(KEYS, n + 1, 2 * n))
for i = 1, n do
  fences[i] = 0 + (fences[i] or redis.call('GET', KEYS[n + i]) or 0) -- MGET has nothing of other types
end
local free = redis.call('EXISTS', unpack(KEYS, 1, n)) == 0
local replies, mine = {}, {}
for i = 1, n do
  local lock, owner, token = KEYS[i], ARGV[2 * i + 1], ARGV[2 * i + 2]
  if not free and redis.call('EXISTS', lock) == 1 then
    replies[i] = redis.pcall('HEXISTS', lock, owner)
    if replies[i] == 1 then
      mine[#mine + 1] = lock
    elseif replies[i] == 0 or redis.call('TYPE', lock)['ok'] == 'string' then
      replies[i] = {0, redis.call('PTTL', lock), fences[i]}
    end
  elseif token + 0 <= fences[i] then
    replies[i] = {2, fences[i]}
  else
    redis.call('SET', KEYS[n + i], token, 'PX', ARGV[2])
    replies[i] = redis.pcall('HSET', lock, owner, '1')
    if replies[i] == 1 then
      replies[i] = redis.pcall('PEXPIRE', lock, ARGV[1])
      if replies[i] ~= 1 then
        redis.call('HDEL', lock, owner)
      end
    end
  end
end
-- As acquire does. Only now, as a server that is out of memory refuses no write after the
-- first.
for _, lock in ipairs(mine) do
  redis.call('HDEL', lock, '')
end
return replies
