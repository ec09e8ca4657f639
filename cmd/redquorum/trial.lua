-- Tries every command that a lock's scripts call, and leaves no key behind: what
-- is written is removed in the same step, so nobody sees it; where the removal
-- is refused, it expires after a second.
--
-- KEYS[1]  a name that nobody uses
-- KEYS[2]  its fence
-- KEYS[3-] its other keys; the sixth is its queue
-- ARGV     its channels, which nobody listens to
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
for i = 2, #KEYS do
  if i ~= 6 then
    try('SET', KEYS[i], '1', 'PX', 1000)
  end
end
try('GET', KEYS[2])
try('GETRANGE', KEYS[2], 0, 63)
try('EXISTS', KEYS[1])
try('TYPE', KEYS[1])
try('PTTL', KEYS[1])
try('HEXISTS', KEYS[1], 'doctor')
try('HGET', KEYS[1], 'doctor')
try('HGETALL', KEYS[1])
try('HSCAN', KEYS[1], 0)
try('HLEN', KEYS[1])
try('HDEL', KEYS[1], 'doctor')
try('ZRANGE', KEYS[6], 0, -1)
try('ZRANK', KEYS[6], 'doctor')
try('ZCOUNT', KEYS[6], '-inf', 1)
try('ZCARD', KEYS[6])
try('ZREM', KEYS[6], 'doctor')
try('PEXPIRE', KEYS[1], 1000)
try('DEL', (table.unpack or unpack)(KEYS))
try('UNLINK', KEYS[1])
if #refused == 0 then
  try('HSET', KEYS[1], 'doctor', '1')
  try('ZADD', KEYS[6], 1, 'doctor')
  redis.call('DEL', KEYS[1], KEYS[6])
end
for _, channel in ipairs(ARGV) do
  try('PUBLISH', channel, '0')
end
return refused
