-- acquire_queued: what acquire_all does with a ticket when the locks are not granted, behind
-- acquire_all and with its variables: it keeps the waiter's places, and tells of the queues.
local reserves = #KEYS > 4 and ARGV[10] == '1'
local what = (locked or reserved) and 0 or 2
for _, i in ipairs(wanted) do
  if way[i] == KEYS[i] then
    local size = of_lock('HLEN', KEYS[i])
    local many = type(size) == 'table' or size > MANY
    local fields = many and {''} or redis.call('HGETALL', KEYS[i])
    for f = 1, #fields, 2 do
      if fields[f] ~= 'mode' and string.sub(fields[f], VERSION_AT, VERSION_AT) ~= VERSION then -- it is not redquorum's
        what = 1
      end
    end
  end
  -- This is whatever the token is: if holders change faster than a command travels, the
  -- token of a far away waiter is never above the fence until the others wait for it. So a
  -- late copy of a command that was released leaves a place, as a dead waiter does.
  if ARGV[8] ~= '0' and (way[i] or turn or reserves) then
    local stands = #KEYS == 4 and tonumber(ARGV[10]) > fence
    local failed = keep_place(KEYS[i + 2], KEYS[i + 3], ARGV[6], ARGV[7], ARGV[8],
      stands and ARGV[1] .. OFFER .. ' ' .. ARGV[11] or reserves and RESERVES or WAITS)
    if failed then
      return failed
    end
  elseif ARGV[8] ~= '0' then
    -- It cannot have this name because of another, so it leaves it to others. When it asks
    -- again it is back with its ticket, if this name is in its way then.
    redis.call('DEL', KEYS[i + 3])
    if redis.call('ZREM', KEYS[i + 2], ARGV[7]) == 1 then
      notify_next(KEYS[i + 2], KEYS[i])
    end
  end
  last = math.max(last, tonumber(redis.call('ZRANGE', KEYS[i + 2], -1, -1, 'WITHSCORES')[2] or 0))
  if way[i] then
    reserves = false -- no lock is kept because of one that sorts before
  end
end
if turn then
  return {2, fence}
end
return {0, longest, fence, most, what, last}
