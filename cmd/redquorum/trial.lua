-- Tries every command that a lock's scripts call, and leaves no key behind: what
-- is written is removed in the same step, so nobody sees it; where the removal
-- is refused, it expires after a second.
--
-- KEYS[1] a name that nobody uses
-- KEYS[2] its fence
-- ARGV[1] its channel, which nobody listens to
--
-- Returns the server's words for each command that it refused.
local refused = {}
local function try(command, ...)
  local reply = redis.pcall(command, ...)
  if type(reply) == 'table' and reply.err then
    refused[#refused + 1] = command .. ': ' .. reply.err
  end
end
-- The first write is one that needs memory: a server that is out of it refuses
-- only what comes before a script's first write.
try('SET', KEYS[2], '1', 'PX', 1000)
try('GET', KEYS[2])
try('EXISTS', KEYS[1])
try('TYPE', KEYS[1])
try('PTTL', KEYS[1])
try('HEXISTS', KEYS[1], 'doctor')
try('HGETALL', KEYS[1])
try('HDEL', KEYS[1], 'doctor')
try('PEXPIRE', KEYS[1], 1000)
try('DEL', KEYS[1], KEYS[2])
try('PUBLISH', ARGV[1], '0')
if #refused == 0 then
  try('HSET', KEYS[1], 'doctor', '1')
  redis.call('DEL', KEYS[1])
end
return refused
