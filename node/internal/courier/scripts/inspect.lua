-- inspect: read what is stored for one name, but not more than a bounded part of it.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence
-- KEYS[3]  the highest token of a reader
-- KEYS[4]  the queue
-- ARGV[1]  what the keys of the places in the queue begin with
-- ARGV[2]  what the keys of the readers' holds begin with
-- ARGV[3]  an owner whose fields are returned if they are there, however many others are
--
-- Returns a list of
--   type of the lock's key
--   ms left; -1: no expiry, -2: no key
--   fence
--   highest token of a reader
--   {waiter, ticket, ms left, ...}, of the first MANY waiters those whose place is kept
--   {field, value, ...} of MANY at most, without dead readers if one of these lives; of a string
--   {how it begins}
--   how many more waiters are in the queue
--   how many more fields there are
--
-- Atomic, so that the owner and the time left belong to the same lock.
local kind = redis.call('TYPE', KEYS[1])['ok']
local function number(key)
  return tonumber(redis.call('GET', key) or 0) + 0 -- fails if it is no number
end
local fence, readers = number(KEYS[2]), number(KEYS[3])
local queue, fields, more = {}, {}, 0
local places = redis.call('ZRANGE', KEYS[4], 0, MANY - 1, 'WITHSCORES')
for i = 1, #places, 2 do
  local left = redis.call('PTTL', ARGV[1] .. places[i])
  if left ~= -2 then
    queue[#queue + 1] = string.sub(places[i], 1, MAX_TEXT)
    queue[#queue + 1] = tonumber(places[i + 1])
    queue[#queue + 1] = left
  end
end
local behind = redis.call('ZCARD', KEYS[4]) - #places / 2
if kind == 'hash' then
  -- take takes a field, once: HSCAN may tell it twice.
  local taken, n, dead = {}, 0, {}
  local mode = redis.call('HGET', KEYS[1], 'mode')
  local check = mode == 'read' and reader_checker(ARGV[2])
  local function take(field, value)
    if taken[field] or not value or n == MANY then
      return
    end
    taken[field], n = true, n + 1
    local list = check and field ~= 'mode' and check(field, value) == -1 and dead or fields
    list[#list + 1] = string.sub(field, 1, MAX_TEXT)
    list[#list + 1] = string.sub(value, 1, MAX_TEXT)
  end
  take('mode', mode)
  for _, field in ipairs({ARGV[3], ARGV[3] .. WRITER}) do
    take(field, redis.call('HGET', KEYS[1], field))
  end
  local cursor, pages = '0', 0
  repeat
    local page = redis.call('HSCAN', KEYS[1], cursor)
    for i = 1, #page[2], 2 do
      take(page[2][i], page[2][i + 1])
    end
    cursor, pages = page[1], pages + 1
  until cursor == '0' or n == MANY or pages == MAX_HOLDS
  more = redis.call('HLEN', KEYS[1]) - n
  if #fields == (mode and 2 or 0) then -- no reader lives
    for _, word in ipairs(dead) do
      fields[#fields + 1] = word
    end
  end
elseif kind == 'string' then
  fields = {redis.call('GETRANGE', KEYS[1], 0, 63)}
end
return {kind, redis.call('PTTL', KEYS[1]), fence, readers, queue, fields, behind, more}
