-- inspect: read all that is stored for one name.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence
-- KEYS[3]  the highest token of a reader
-- KEYS[4]  the queue
-- ARGV[1]  what the keys of the places in the queue begin with
-- ARGV[2]  what the keys of the readers' holds begin with
--
-- Returns a list of
--   type of the lock's key
--   ms left; -1: no expiry, -2: no key
--   fence
--   highest token of a reader
--   {waiter, ticket, ms left, ...}, of waiters whose place is kept
--   {field, value, ...}, without dead readers if one lives; of a string {how it begins}
--
-- Atomic, so that the owner and the time left belong to the same lock.
local kind = redis.call('TYPE', KEYS[1])['ok']
local function number(key)
  return tonumber(redis.call('GET', key) or 0) + 0 -- fails if it is no number
end
local fence, readers = number(KEYS[2]), number(KEYS[3])
local queue, fields = {}, {}
local places = redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES')
for i = 1, #places, 2 do
  local left = redis.call('PTTL', ARGV[1] .. places[i])
  if left ~= -2 then
    queue[#queue + 1] = places[i]
    queue[#queue + 1] = tonumber(places[i + 1])
    queue[#queue + 1] = left
  end
end
if kind == 'hash' then
  fields = redis.call('HGETALL', KEYS[1])
  if redis.call('HGET', KEYS[1], 'mode') == 'read' then
    -- A reader is dead when none of its holds is there. Redisson counts them in
    -- the field's value, which is not trusted beyond MAX_HOLDS.
    local living, readers = {}, 0
    for i = 1, #fields, 2 do
      local alive = fields[i] == 'mode'
      for hold = 1, alive and 0 or math.min(tonumber(fields[i + 1]) or 1, MAX_HOLDS) do
        if redis.call('EXISTS', ARGV[2] .. ':' .. fields[i] .. HOLD .. hold) == 1 then
          alive, readers = true, readers + 1
        end
      end
      if alive then
        living[#living + 1], living[#living + 2] = fields[i], fields[i + 1]
      end
    end
    if readers > 0 then
      fields = living
    end
  end
elseif kind == 'string' then
  fields = {string.sub(redis.call('GET', KEYS[1]), 1, 64)}
end
return {kind, redis.call('PTTL', KEYS[1]), fence, readers, queue, fields}
