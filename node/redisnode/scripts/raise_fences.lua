-- raise_fences: what the scripts begin with that release locks. It raises the fences to the
-- token where they are below. The locks are at KEYS[1], KEYS[1+step] and so on up to
-- KEYS[last], each with its fence behind it; with a step of 4 the fourth key, the owner's
-- hold or place, goes with the release, too. ARGV are owner, token, life of the fences, ms.
--
-- A server that is out of memory refuses what may need some, but only before a script's
-- first write. So if the owner has anything that the release frees, a write that changes
-- nothing makes way for the fence. Otherwise the server may refuse: releases of what is
-- not there must not fill it with fences. The fences still come before the locks go: if a
-- server refuses them all the same, the lock stays, rather than go and let a late copy of
-- its acquire bring it back.

local function raise_fences(last, step)
  for i = 1, last, step do
    if tonumber(ARGV[2]) > tonumber(redis.call('GET', KEYS[i + 1]) or 0) then
      if redis.pcall('SET', KEYS[i + 1], ARGV[2], 'PX', ARGV[3]).err then
        for k = 1, last, step do
          local frees = step == 4 and redis.call('EXISTS', KEYS[k + 3]) == 1
          for _, kind in ipairs({'', WRITER, STANDBY}) do
            frees = frees or redis.pcall('HEXISTS', KEYS[k], ARGV[1] .. kind) == 1
          end
          if frees then
            redis.pcall('HDEL', KEYS[k], '')
          end
        end
        redis.call('SET', KEYS[i + 1], ARGV[2], 'PX', ARGV[3])
      end
    end
  end
end

