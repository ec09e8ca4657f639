-- of_lock: reads a lock, for scripts that begin with it.
--
-- It returns what a command of hashes says of the key, and an error, a table, if the key is a
-- string: a lock that another library made by SET NX. It fails if it is anything else.
local function of_lock(command, key, ...)
  local said = redis.pcall(command, key, ...)
  if type(said) == 'table' and redis.call('TYPE', key)['ok'] ~= 'string' then
    return redis.call(command, key, ...)
  end
  return said
end

