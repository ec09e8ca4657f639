-- acquire_all: create the locks of one owner, all or none, in any mode. With a ticket places are
-- kept for its waiter in the wait queues until it gets them.
--
-- KEYS are two or four for each lock; of readers and writers there is one lock, with four:
--          the lock, a hash
--          its fence, the highest token seen but for those of readers
--          its queue, a sorted set: waiters by their tickets
--          the waiter's place: it is there as long as the place is kept
-- ARGV[1]  owner
-- ARGV[2]  token
-- ARGV[3]  life of the locks, ms
-- ARGV[4]  life of the fences, ms
-- ARGV[5]  'read', 'write' or '' (exclusive)
-- ARGV[6]  ticket; 0: none, and there are no more arguments
-- ARGV[7]  waiter
-- ARGV[8]  life of the places, ms; 0: none is made
-- ARGV[9]  1: the waiter barges, 0: it does not
-- ARGV[10] with one lock: a token; if it is above the fence the place has an offer,
--          and a release may hand the lock over to it
--          with several: 1: places are kept for all locks up to the first in the way,
--          0: for those in the way
-- ARGV[11] with one lock: the secret of the offer
--
-- Returns
--   1, or {1, last}          granted, the latter with a ticket if others are in the queues
--   {0, left, fence, ahead,  refused; without a ticket, {0, left, fence}
--    what, last}
--   {2, fence}               stale: the token is not above the fence
--
--   left   ms left, or -1, of the locks in the way, or else of the places of waiters in the way:
--          the longest
--   fence  the highest of the locks that the owner does not have
--   ahead  how many waiters are before this one, the most of one queue
--   what   is in the way; 0: a lock, or a place that reserves one; 1: a lock that is not
--          redquorum's, or has more than MANY fields; 2: no lock
--   last   the highest ticket in the queues
--
-- Atomic, because another client could create a key after the check for it, because lock and
-- fence must change together, and because no other may become first in between.
local mode, queued = ARGV[5], ARGV[6] ~= '0'
local step = (queued or mode ~= '') and 4 or 2
local field = mode == 'write' and ARGV[1] .. WRITER or ARGV[1]
local holds = mode ~= '' and (string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}')
local hold = mode == 'read' and holds .. ':' .. ARGV[1] .. HOLD .. '1'
local readers = mode ~= '' and READERS .. string.sub(KEYS[3], #QUEUE + 1)
local is = mode ~= '' and of_lock('HGET', KEYS[1], 'mode')

local wanted = {}
for i = 1, #KEYS, step do
  if mode == 'read' and is ~= 'read' or of_lock('HEXISTS', KEYS[i], field) ~= 1 or
    mode == 'read' and redis.call('EXISTS', hold) == 0 then
    wanted[#wanted + 1] = i
  end
end
if #wanted == 0 then
  -- It changes nothing, but a replica refuses it: the lock there is its master's vote.
  redis.call('HDEL', KEYS[1], '')
  return 1
end
local fence, locked, reserved, most, read = 0, false, false, 0, 0
local way, left = {}, {} -- by i: the lock in the way, or the place of the waiter in the way; and PTTLs of locks
for _, i in ipairs(wanted) do
  local token = tonumber(redis.call('GET', KEYS[i + 1]) or 0) + 0 -- fails if it is no number
  if mode ~= '' then
    read = tonumber(redis.call('GET', readers) or 0)
  end
  fence = math.max(fence, token, mode == 'write' and read or 0)

  -- n waiters are before this one. Dead ones up to the first that is in the way are removed; first
  -- is that one, and those before at are other readers. No more than MAX_GROUP are looked at: those
  -- behind them are not in the way.
  local queue, n, at, first, seen = KEYS[i + 2], 0, 0, nil, 0
  if queued then
    n = redis.call('ZRANK', queue, ARGV[7]) or redis.call('ZCOUNT', queue, '-inf', ARGV[6])
  elseif mode == 'read' then
    n = redis.call('ZCARD', queue)
  end
  while at < n and not first and seen < MAX_GROUP do
    seen = seen + 1
    local waiter = redis.call('ZRANGE', queue, at, at)[1]
    local place = PLACE .. string.sub(queue, #QUEUE + 1) .. ':' .. waiter
    if mode == 'read' and string.sub(waiter, -#READER) == READER then
      at = at + 1
    elseif redis.call('EXISTS', place) == 1 then
      first = place
    else
      redis.call('ZREM', queue, waiter)
      n = n - 1
    end
  end

  left[i] = redis.call('PTTL', KEYS[i])
  if left[i] ~= -2 and (mode == '' or is ~= 'read' or mode == 'write' and reap_dead_readers(KEYS[i], holds)) then
    locked, way[i] = true, KEYS[i]
  elseif first and (mode == 'read' or not queued or ARGV[9] == '0') then
    way[i] = first
    reserved = reserved or redis.pcall('GET', first) == RESERVES
  end
  most = way[i] and first and math.max(most, n - at) or most
end
local last = 0
local turn = next(way) == nil
if turn and tonumber(ARGV[2]) > fence then
  -- What can fail, for lack of memory or of a right, fails first.
  for _, i in ipairs(wanted) do
    if mode ~= 'read' then
      redis.call('SET', KEYS[i + 1], ARGV[2], 'PX', ARGV[4])
    elseif tonumber(ARGV[2]) > read then
      redis.call('SET', readers, ARGV[2], 'PX', ARGV[4])
    end
  end
  for _, i in ipairs(wanted) do
    local failed = create(mode, KEYS[i], hold, ARGV[1], ARGV[3], left[i])
    if failed then
      return failed
    end
  end
  for k = 1, queued and #wanted or 0 do
    local queue = KEYS[wanted[k] + 2]
    redis.call('ZREM', queue, ARGV[7])
    redis.call('DEL', KEYS[wanted[k] + 3])
    last = math.max(last, tonumber(redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0))
  end
  return last > 0 and {1, last} or 1
end
local longest = 0
for _, i in ipairs(wanted) do
  if way[i] and (way[i] == KEYS[i] or not locked) then
    local ms = redis.call('PTTL', way[i])
    if ms == -1 or longest ~= -1 and ms > longest then
      longest = ms
    end
  end
end
if not queued then
  return turn and {2, fence} or {0, longest, fence}
end

