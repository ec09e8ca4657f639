-- raise_fences: raises fences to the token if they are below, for scripts that begin with it
-- and release locks. The locks are at KEYS[1], KEYS[1+step] and so on up to KEYS[last], each
-- followed by its fence. With a step of 4 the fourth key is a waiter's place, which
-- the release removes, too. ARGV are owner, token, life of the fences, ms.
--
-- A server that is out of memory refuses writes that may need some, but only before a
-- script's first write. So if the release frees anything, a write that changes nothing comes
-- before the fence. Otherwise the server may refuse: releases of locks that are not there must
-- not fill it with fences. The fences come before the locks go. If a server refuses them
-- nevertheless, the lock stays: if it went, a late copy of its acquire could bring it back.

local function raise_fences(last, step)
--include constants
  for i = 1, last, step do
    if ARGV[2] ~= '0' and tonumber(ARGV[2]) > tonumber(redis.call('GET', KEYS[i + 1]) or 0) then
      if redis.pcall('SET', KEYS[i + 1], ARGV[2], 'PX', ARGV[3]).err then
        for k = 1, last, step do
          local frees = step == 4 and redis.call('EXISTS', KEYS[k + 3]) == 1
          for _, kind in ipairs({'', WRITER, OFFER, OFFER .. WRITER}) do
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

