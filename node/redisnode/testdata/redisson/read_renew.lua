-- KEYS lock, all holds; ARGV lease ms, readers...: 1 if there was any.
local kept = 0
for i = 2, #ARGV do
  for hold = 1, tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or 0) do
    kept = 1
    redis.call('PEXPIRE', KEYS[2] .. ':' .. ARGV[i] .. ':rwlock_timeout:' .. hold, ARGV[1])
  end
end
if kept == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return kept
