-- create: creates several locks, for scripts that begin with it. A lock is at KEYS[i]
-- for each i of wanted, its fence at KEYS[i+1]; ARGV are owner, token, life of the
-- locks and of the fences, ms. It returns the error if there was one.
--
-- What can fail, for lack of memory or of a right, fails first. And a lock that would
-- never expire must not stay.
local function create(wanted)
  for _, i in ipairs(wanted) do
    redis.call('SET', KEYS[i + 1], ARGV[2], 'PX', ARGV[4])
  end
  for _, i in ipairs(wanted) do
    redis.call('HSET', KEYS[i], ARGV[1], '1')
    local expires = redis.pcall('PEXPIRE', KEYS[i], ARGV[3])
    if type(expires) == 'table' and expires.err then
      redis.call('HDEL', KEYS[i], ARGV[1])
      return expires
    end
  end
end
