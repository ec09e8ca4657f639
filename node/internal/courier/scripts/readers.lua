-- readers: finds living readers, for scripts that begin with it.
--
-- A reader is dead when none of its holds is there; holds is what their keys begin with.
-- Redisson counts them in the field's value, which is not trusted beyond MAX_HOLDS, as the
-- hash may be another program's.
--
-- Up to MANY fields are all checked. If there are more, they are checked a page at a time,
-- from a random place on, until a living one is found, and dead ones on the way are removed.
-- So the cost of a call does not grow with the readers: it meets each dead one once, or all
-- are dead.

-- reap_dead_readers removes dead readers from a lock, unless all are dead. Then it returns
-- nil, otherwise how long the last reader lives, ms, and whether it may be longer.
local function reap_dead_readers(lock, holds)
  local size = redis.call('HLEN', lock)
  if size == 1 then -- the mode
    return
  end
  local many = size > MANY
  local anywhere = many and math.max(redis.call('PTTL', lock), 0) or 0
  local cursor, rounds = anywhere, many and 2 or 1 -- the second begins at the beginning
  local dead, longest, longer = {}, -1, many
  while rounds > 0 and not (many and longest ~= -1) do
    local page = redis.call('HSCAN', lock, cursor)
    local fields, n = page[2], #page[2] / 2
    for k = 0, n - 1 do
      local i = (anywhere + k) % n * 2 + 1
      local living = fields[i] == 'mode'
      for hold = 1, living and 0 or math.min(tonumber(fields[i + 1]) or 1, MAX_HOLDS) do
        local left = redis.call('PTTL', holds .. ':' .. fields[i] .. HOLD .. hold)
        if left ~= -2 then
          living, longest, longer = true, math.max(longest, left, 1), longer or left == -1
        end
      end
      if not living then
        dead[#dead + 1] = fields[i]
      elseif many and longest ~= -1 then
        break
      end
    end
    cursor = page[1]
    if cursor == '0' then
      rounds = rounds - 1
    end
  end
  if longest == -1 then
    return
  end
  for _, reader in ipairs(dead) do
    redis.call('HDEL', lock, reader)
  end
  return longest, longer
end

