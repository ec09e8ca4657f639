-- release_each: end locks of many owners, each as release does by itself.
--
-- KEYS[i]       a lock, a hash; of n locks, no two are one
-- KEYS[n+i]     its fence
-- KEYS[2n+i]    its queue
-- ARGV[1]       life of the fences, ms
-- ARGV[2]       run_id of the server
-- ARGV[4i-1]    owner
-- ARGV[4i]      token
-- ARGV[4i+1]    channel of waiters that have no place in the queue; of the queue, the next
--               waiter is notified
-- ARGV[4i+2]    token with which the lock may be handed over, as by release; 0: it is not
--
-- Returns what release returns for each, as a list. If it cannot read or raise a fence it
-- fails as a whole, before it has released anything. After that it does not fail: each
-- owner must hear of its release, even if others fail.
local unpack = table.unpack or unpack -- Lua 5.4 has the one, Redis the other
local n = #KEYS / 3
local fences = redis.call('MGET', unpack(KEYS, n + 1, 2 * n))
for i = 1, n do
  local fence = fences[i] or redis.call('GET', KEYS[n + i]) or 0 -- MGET has nothing of other types
  if ARGV[4 * i] ~= fence and tonumber(ARGV[4 * i]) > 0 + fence then
    redis.call('SET', KEYS[n + i], ARGV[4 * i], 'PX', ARGV[1])
  end
end
local lines = redis.call('EXISTS', unpack(KEYS, 2 * n + 1, 3 * n)) > 0
local replies = {}
for i = 1, n do
  replies[i] = redis.pcall('HDEL', KEYS[i], ARGV[4 * i - 1])
end
local gone = redis.call('EXISTS', unpack(KEYS, 1, n)) == 0
for i = 1, n do
  if replies[i] == 1 and (gone or redis.call('EXISTS', KEYS[i]) == 0) then
    local others = redis.pcall('PUBLISH', ARGV[4 * i + 1], '0')
    if type(others) == 'table' then
      replies[i] = others
    elseif others > 0 then
      replies[i] = 3
    end
    if type(others) == 'number' and lines and redis.call('EXISTS', KEYS[2 * n + i]) == 1 then
      local told, failed, awaited = pcall(notify_next, KEYS[2 * n + i], KEYS[i], KEYS[n + i],
        false, others == 0 and ARGV[4 * i + 2], ARGV[1], ARGV[2], ARGV[4 * i - 1])
      replies[i] = failed or 1 + (awaited and 1 or 0) + (others > 0 and 2 or 0)
      if not told and type(failed) ~= 'table' then
        replies[i] = {err = failed} -- Redis 6
      end
    end
  end
end
return replies
