-- readers: what the scripts begin with that have to know whether anybody reads.
--
-- A reader is dead when none of its holds is there; holds is what their keys begin with.
-- Redisson counts them in the field's value, which is not trusted beyond 1000: the hash
-- may be somebody else's.
--
-- Of up to 64 fields all are looked at. Of more it is 64, beginning anywhere, and others
-- only until one is found that lives: so what one reader costs does not grow with them,
-- but for HGETALL.

-- bury removes dead readers from a lock, unless all are dead. It returns nil if they
-- are, or how long the last one lives, ms, and whether that may be longer.
local function bury(lock, holds)
  local fields, dead, longest, longer = redis.call('HGETALL', lock), {}, -1, false
  local n = #fields / 2
  local many = n > 64
  local first = many and redis.call('PTTL', lock) % n or 0
  for k = 0, n - 1 do
    if k >= 64 and longest ~= -1 then
      break
    end
    local i = (first + k) % n * 2 + 1
    local living = fields[i] == 'mode'
    for hold = 1, living and 0 or math.min(tonumber(fields[i + 1]) or 1, 1000) do
      local left = redis.call('PTTL', holds .. ':' .. fields[i] .. ':rwlock_timeout:' .. hold)
      if left ~= -2 then
        living, longest, longer = true, math.max(longest, left, 1), longer or left == -1
      end
    end
    if not living then
      dead[#dead + 1] = fields[i]
    end
  end
  if longest == -1 then
    return
  end
  for _, reader in ipairs(dead) do
    redis.call('HDEL', lock, reader)
  end
  return longest, longer or many
end

