-- readers: finds living readers, for scripts that begin with it.
--
-- A reader is dead when none of its holds is there; holds is what their keys begin with.
-- Redisson counts them in the field's value, which is not trusted beyond MAX_HOLDS, as the
-- hash may be another program's. One command checks as many in all: readers that it does not
-- come to count as living.
--
-- Up to MANY fields are all checked. If there are more, they are checked a page at a time,
-- from a random place on, until a living one is found, and dead ones on the way are removed.
-- So the cost of a call does not grow with the readers.

-- reader_checker returns a function that tells how long a reader lives, ms, or -1 if it is dead;
-- and whether it may live longer.
local function reader_checker(holds)
  local unchecked = MAX_HOLDS
  return function(field, value)
    local count = math.min(math.max(1, tonumber(value) or 1), MAX_HOLDS)
    if count > unchecked then
      return 1, true
    end
    unchecked = unchecked - count
    local longest, longer = -1, false
    for hold = 1, count do
      local left = redis.call('PTTL', holds .. ':' .. field .. HOLD .. hold)
      if left ~= -2 then
        longest, longer = math.max(longest, left, 1), longer or left == -1
      end
    end
    return longest, longer
  end
end

-- reap_dead_readers removes dead readers from a lock, unless all are dead. Then it returns
-- nil, otherwise how long the last reader lives, ms, and whether it may be longer.
local function reap_dead_readers(lock, holds)
  local size = redis.call('HLEN', lock)
  if size == 1 then -- the mode
    return
  end
  local many, check = size > MANY, reader_checker(holds)
  local anywhere = many and math.max(redis.call('PTTL', lock), 0) or 0
  local cursor, rounds, pages = anywhere, many and 2 or 1, 0 -- the second begins at the beginning
  local dead, longest, longer = {}, -1, many
  while rounds > 0 and not (many and longest ~= -1) do
    local page = redis.call('HSCAN', lock, cursor)
    local fields, n = page[2], #page[2] / 2
    for k = 0, n - 1 do
      local i = (anywhere + k) % n * 2 + 1
      if fields[i] ~= 'mode' then
        local left, more = check(fields[i], fields[i + 1])
        if left == -1 then
          dead[#dead + 1] = fields[i]
        else
          longest, longer = math.max(longest, left), longer or more
          if many then
            break
          end
        end
      end
    end
    cursor, pages = page[1], pages + 1
    if cursor == '0' then
      rounds = rounds - 1
    elseif pages == MAX_HOLDS and longest == -1 then
      longest, longer = 1, true -- those that were not read
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

