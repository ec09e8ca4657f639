-- Executes scripts as a server does that has this version of Lua: no global is there but
-- Redis's, and a number that is no integer goes neither to a command nor to the caller.
local function read()
  local line = io.read('L')
  return line:sub(1, 1), tonumber(line:match('%d+')), line
end
local function bytes(n) return n == 0 and '' or io.read(n) end -- to read none waits for one
local function words(n)
  local all = {}
  for i = 1, n do
    all[i] = bytes(tonumber(io.read('l')))
  end
  return all
end
local function text(value)
  assert(type(value) == 'string' or math.type(value) == 'integer', 'BUG: neither a string nor an integer: ' .. tostring(value))
  return tostring(value)
end
local function answer()
  local kind, n, line = read()
  if kind == ':' then
    return tonumber(line:sub(2))
  elseif kind == '_' then
    return false
  elseif kind == '*' then
    local all = {}
    for i = 1, n do
      all[i] = answer()
    end
    return all
  end
  local said = bytes(n)
  return kind == '$' and said or kind == '+' and {ok = said} or {err = said}
end
local function pcommand(...)
  local all = {}
  for i = 1, select('#', ...) do
    local word = text((select(i, ...)))
    all[i] = #word .. '\n' .. word
  end
  io.write('?', #all, '\n', table.concat(all))
  io.flush()
  return answer()
end
local redis = {
  pcall = pcommand,
  call = function(...)
    local said = pcommand(...)
    if type(said) == 'table' and said.err then
      error(said)
    end
    return said
  end,
  error_reply = function(said) return {err = said} end,
}
local function resp(value)
  if type(value) == 'table' and value.err then
    return '-' .. value.err .. '\r\n'
  elseif type(value) == 'table' then
    local all = {}
    for i, one in ipairs(value) do
      all[i] = resp(one)
    end
    return '*' .. #all .. '\r\n' .. table.concat(all)
  elseif value == nil or value == false then
    return '$-1\r\n'
  end
  local said = text(value)
  return type(value) == 'number' and ':' .. said .. '\r\n' or '$' .. #said .. '\r\n' .. said .. '\r\n'
end
for n in io.lines() do
  local all = words(tonumber(n))
  local keys = tonumber(all[2])
  local env = setmetatable({
    redis = redis, KEYS = table.move(all, 3, 2 + keys, 1, {}), ARGV = table.move(all, 3 + keys, #all, 1, {}),
    string = string, table = table, math = math, type = type, tonumber = tonumber, tostring = tostring,
    ipairs = ipairs, pairs = pairs, next = next, select = select, pcall = pcall, error = error,
  }, {__index = function(_, name) error('BUG: there is no global ' .. name) end})
  local fine, said = pcall(assert(load(all[1], 'script', 't', env)))
  if not fine and type(said) ~= 'table' then
    said = {err = 'ERR ' .. tostring(said)}
  end
  said = resp(said)
  io.write('=', #said, '\n', said)
  io.flush()
end
