-- The sandbox that templates and family files run in: no way to files, code or other chunks, and nothing whose result
-- could differ from run to run. Embedded in the program; gen/spec/spec.c loads it and hands it to spec.lua.
local core = ... -- from C: string_methods(t)

local next, type, tostring, select, error = next, type, tostring, select, error
local rawget, rawset, getmetatable, setmetatable = rawget, rawset, getmetatable, setmetatable
local sort, format = table.sort, string.format

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
function base.setmetatable(t, meta)
  if type(meta) == "table" and (rawget(meta, "__gc") ~= nil or rawget(meta, "__mode") ~= nil) then
    error("a metatable with __gc or __mode would make the result depend on the collector", 2)
  end
  return setmetatable(t, meta)
end

do
  local strings = copy(string, { dump = true })
  function strings.format(pattern, ...)
    for i = 1, select("#", ...) do printable((select(i, ...)), 2) end
    if type(pattern) == "string" and pattern:gsub("%%%%", ""):find("%%[-+ #0-9.]*p") then
      error("string.format() has no %p here: addresses differ from run to run", 2)
    end
    return format(pattern, ...)
  end
  base.string = read_only(strings, "string")
  base.table = read_only(copy(table, {}), "table")
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

return {
  sorted_keys = sorted_keys, read_only = read_only, copy = copy, nearest = nearest, names_of = names_of, base = base,
  environment = environment,
}
