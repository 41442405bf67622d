-- The sandbox that templates and family files run in: no way to files or code but include(), and nothing whose result
-- could differ from run to run. Embedded in the program; gen/spec/spec.c loads it and hands it to spec.lua.
local core = ... -- from C: string_methods(t), guard(name, function), load(source, chunk, env), read(name)

local next, type, tostring, select, error = next, type, tostring, select, error
local rawget, rawset, getmetatable, setmetatable = rawget, rawset, getmetatable, setmetatable
local sort, format, find, gsub = table.sort, string.format, string.find, string.gsub

local function key_less(a, b)
  local ta, tb = type(a), type(b)
  if ta ~= tb then return ta < tb end -- numbers before strings
  return a < b
end

local function sorted_keys(t, level)
  local keys, n = {}, 0
  for k in next, t do
    if type(k) ~= "string" and type(k) ~= "number" then
      error("pairs() found a key of type " .. type(k) .. "; only strings and numbers have an order", level + 1)
    end
    n = n + 1
    keys[n] = k
  end
  sort(keys, key_less)
  return keys
end

-- What a read-only table shows, kept where no sandboxed code can reach it.
local hidden = setmetatable({}, { __mode = "k" })

local function read_only(values, what)
  local shown = setmetatable({}, {
    __index = values,
    __newindex = function(_, k) error(format("attempt to set '%s' of %s, which is read-only", tostring(k), what), 2) end,
    __len = function() return #values end,
    __metatable = false,
  })
  hidden[shown] = values
  return shown
end

local function contents(t)
  return hidden[t] or t
end

-- The order of stock Lua's pairs differs from run to run, and with it would the text a template makes.
local function sorted_pairs(t)
  if type(t) ~= "table" then error("pairs() wants a table, not a " .. type(t), 2) end
  local values = contents(t)
  local keys, i = sorted_keys(values, 2), 0
  return function()
    i = i + 1
    if keys[i] ~= nil then return keys[i], values[keys[i]] end
  end
end

local function sorted_next(t, key)
  if type(t) ~= "table" then error("next() wants a table, not a " .. type(t), 2) end
  local values = contents(t)
  local keys = sorted_keys(values, 2)
  if key == nil then return keys[1], values[keys[1]] end
  for i, k in ipairs(keys) do
    if k == key then return keys[i + 1], keys[i + 1] and values[keys[i + 1]] end
  end
end

-- A table or a function prints as its address, which differs from run to run.
local function printable(x, level)
  local t = type(x)
  if t == "string" or t == "number" or t == "boolean" or t == "nil" then return true end
  local meta = getmetatable(x)
  if not (type(meta) == "table" and rawget(meta, "__tostring")) then
    error("a " .. t .. " has no text of its own: its address would differ from run to run", level + 1)
  end
end

local function copy(t, without)
  local c = {}
  for k, v in next, t do
    if not without[k] then c[k] = v end
  end
  return c
end

-- How many single-letter edits part two names.
local function distance(a, b)
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local diagonal = row[0]
    row[0] = i
    for j = 1, #b do
      local change = diagonal + (a:byte(i) == b:byte(j) and 0 or 1)
      diagonal = row[j]
      row[j] = math.min(change, row[j] + 1, row[j - 1] + 1)
    end
  end
  return row[#b]
end

local function nearest(name, names)
  local best, least = nil, math.max(2, #name // 3) + 1
  for _, other in ipairs(names) do
    local d = distance(name:lower(), other:lower())
    if d < least then best, least = other, d end
  end
  return best
end

local function names_of(...)
  local names = {}
  for i = 1, select("#", ...) do
    for k in next, (select(i, ...)) do names[#names + 1] = tostring(k) end
  end
  sort(names)
  return names
end

local base = {
  error = error, ipairs = ipairs, pcall = pcall, rawequal = rawequal, rawlen = rawlen, select = select,
  tonumber = tonumber, type = type, xpcall = xpcall, _VERSION = _VERSION,
  pairs = sorted_pairs,
  next = sorted_next,
  getmetatable = getmetatable,
}
-- Lua's own assert does not say where.
function base.assert(value, message, ...)
  if value then return value, message, ... end
  error(message == nil and "assertion failed" or message, 2)
end
function base.tostring(x)
  printable(x, 2)
  return tostring(x)
end
function base.rawget(t, k)
  if type(t) ~= "table" then error("rawget() wants a table, not a " .. type(t), 2) end
  return rawget(contents(t), k)
end
function base.rawset(t, k, v)
  if contents(t) ~= t then error("rawset() of a read-only table", 2) end
  return rawset(t, k, v)
end

-- Loops of C, which no count of instructions ends. There is no setmetatable either: a table's length is then its own, and
-- nothing of the user's runs where the program reads a table.
local MOST_BYTES, MOST_MOVED = 1 << 26, 1 << 24

-- As C reads an argument: numbers in strings count, too.
local function integer(x)
  return math.tointeger(tonumber(x))
end

local function bounded_rep(rep)
  return function(s, n, sep)
    local count, size = integer(n), type(s) == "string" and #s or type(s) == "number" and #tostring(s)
    if count and count > 0 and size then
      size = size + (type(sep) == "string" and #sep or 0)
      if size == 0 then return "" end
      if count > MOST_BYTES // size then
        error(format("string.rep() would make more than %d bytes", MOST_BYTES), 2)
      end
    end
    return rep(s, n, sep)
  end
end

-- A table's border may be any number, however few elements it has.
local function check_moved(name, t)
  if type(t) == "table" and #t > MOST_MOVED then
    error(format("table.%s() of %d elements; allowed: at most %d", name, #t, MOST_MOVED), 3)
  end
end

local function bounded_table()
  local insert, remove, move = table.insert, table.remove, table.move
  local tables = copy(table, {})
  function tables.insert(t, ...)
    check_moved("insert", t)
    return insert(t, ...)
  end
  function tables.remove(t, ...)
    check_moved("remove", t)
    return remove(t, ...)
  end
  function tables.move(t, first, last, ...)
    local from, to = integer(first), integer(last)
    if from and to and to >= from and math.ult(MOST_MOVED - 1, to - from) then
      error(format("table.move() of elements %d to %d; allowed: at most %d", from, to, MOST_MOVED), 2)
    end
    return move(t, first, last, ...)
  end
  tables.concat, tables.sort = core.guard("table.concat", table.concat), core.guard("table.sort", sort)
  return tables
end

do
  local strings = copy(string, { dump = true })
  strings.rep = bounded_rep(string.rep)
  for _, name in ipairs({ "find", "match", "gsub" }) do strings[name] = core.guard("string." .. name, string[name]) end
  function strings.gmatch(...) return core.guard("string.gmatch", string.gmatch(...)) end
  function strings.format(pattern, ...)
    for i = 1, select("#", ...) do printable((select(i, ...)), 2) end
    if type(pattern) == "string" and find(gsub(pattern, "%%%%", ""), "%%[-+ #0-9.]*p") then
      error("string.format() has no %p here: addresses differ from run to run", 2)
    end
    return format(pattern, ...)
  end
  base.string = read_only(strings, "string")
  base.table = read_only(bounded_table(), "table")
  base.math = read_only(copy(math, { random = true, randomseed = true }), "math")
  -- ("x"):rep(3) goes through the metatable of strings.
  core.string_methods(strings)
end

-- A float literal of CUDA C: the shortest text that reads back as the same float.
function base.f32(x)
  if type(x) ~= "number" then error("f32() wants a number, not a " .. type(x), 2) end
  if x ~= x or x - x ~= 0 then error("f32() wants a finite number, not " .. tostring(x), 2) end
  local bits = string.pack("<f", x)
  local value = string.unpack("<f", bits)
  if value - value ~= 0 then error(format("f32(%g) is too large for a float", x), 2) end
  for digits = 1, 17 do
    local text = format("%." .. digits .. "g", value)
    if string.pack("<f", tonumber(text)) == bits then
      if not text:find("[.e]") then text = text .. ".0" end
      return text .. "f"
    end
  end
end

-- An environment that holds `given`, then the base; what a chunk assigns stays in it.
local function environment(given)
  return setmetatable(given, {
    __metatable = false,
    __index = function(_, name)
      local value = rawget(base, name)
      if value ~= nil then return value end
      local near = nearest(tostring(name), names_of(base, given))
      error(format("undefined name %q%s", tostring(name), near and ", did you mean \"" .. near .. "\"?" or ""), 2)
    end,
  })
end

-- include("kda/space.lua") for chunks of this environment: runs the file in it, once, and returns what it returns.
local function includer(env)
  local results, running = {}, {}
  return function(name)
    if type(name) ~= "string" then error("include() wants a file's name, such as \"kda/space.lua\", not a " .. type(name), 2) end
    if running[name] then error(format("include(%q) is within itself", name), 2) end
    if not results[name] then
      local source, message = core.read(name)
      if not source then error(message, 2) end
      running[name] = true
      results[name] = { core.load(source, name, env)() }
      running[name] = nil
    end
    return results[name][1]
  end
end

return {
  includer = includer, sorted_keys = sorted_keys, read_only = read_only, copy = copy, nearest = nearest, names_of = names_of, base = base,
  environment = environment,
}
