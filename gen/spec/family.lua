-- Family files: read, and every field checked. Embedded in the program, like spec.lua, which gets what this returns.
local core, sandbox = ... -- from C: load(source, chunk, env), line_of(function, path), fail(message)

local next, type, tostring = next, type, tostring
local concat, format = table.concat, string.format
local sorted_keys, nearest, names_of, environment = sandbox.sorted_keys, sandbox.nearest, sandbox.names_of, sandbox.environment

-- Limits of runtime/format/product.h, and of what can be enumerated in minutes.
local MAX_REQUIRED, MAX_FACTS, MAX_COORDS, MAX_COMBINATIONS = 8, core.max_facts, core.max_coords, 10000000

local function fail(family, line, message, ...)
  local where = type(line) == "string" and line or format("%s:%d", family.path, line)
  core.fail(format("%s: %s", where, format(message, ...)))
end

-- Where a function stands: a line of the family's file, or "file:line" of one that it includes.
local function line_of(family, fn)
  return core.line_of(fn, family.path)
end

-- The line that spells `pattern`, at or after `from`: where a mistake in a field is best shown.
local function line_with(family, pattern, from)
  local n = 0
  for line in (family.source .. "\n"):gmatch("(.-)\n") do
    n = n + 1
    if n >= from and line:find(pattern) then return n end
  end
  return from
end

local function field_line(family, field)
  return line_with(family, "%f[%w_]" .. field:gsub("%W", "%%%0") .. "%s*=", family.line)
end

local function shown(x)
  if type(x) == "string" then return format("%q", x) end
  if type(x) == "number" or type(x) == "boolean" or x == nil then return tostring(x) end
  return "a " .. type(x)
end

local function list_text(names)
  return concat(names, ", ")
end

local fields = {
  name = { "string", true }, required = { "table", true }, free = { "table", true }, legal = { "function", true },
  facts = { "table", true }, plan = { "function", true }, template = { "function", true }, fallback = { "function", true },
  coords = { "table" }, constants = { "function" }, symbol = { "function" }, serves = { "function" },
  trial = { "function" },
}
local field_names = names_of(fields)

local function is_list(t)
  local n = 0
  for _ in next, t do n = n + 1 end
  return n == #t
end

local function check_value(family, line, axis, value, seen)
  if math.type(value) ~= "integer" and type(value) ~= "string" then
    fail(family, line, "axis %s: a value is %s; allowed: strings and integers", axis, shown(value))
  end
  if not tostring(value):find("^%w[%w_]*$") then
    fail(family, line, "axis %s: value %s cannot be part of a C name; allowed: letters, digits, _ (no sign)", axis,
      shown(value))
  end
  if seen[tostring(value)] then fail(family, line, "axis %s: value %s stands twice", axis, shown(value)) end
  seen[tostring(value)] = true
end

local axis_fields = { name = true, values = true, tag = true, unspelled = true }

local function check_axis(family, kind, i, axis, seen)
  local line = field_line(family, kind)
  if type(axis) ~= "table" then
    fail(family, line, "%s: entry %d is %s; allowed: { name, values, tag }", kind, i, shown(axis))
  end
  local name = axis.name
  if type(name) ~= "string" or not name:find("^%l[%l%d_]*$") then
    fail(family, line, "%s: entry %d has the name %s; allowed: lower-case letters, digits, _", kind, i, shown(name))
  end
  line = line_with(family, "name%s*=%s*[\"']" .. name .. "[\"']", line)
  for _, k in ipairs(sorted_keys(axis, 1)) do
    if not axis_fields[k] then
      fail(family, line, "axis %s: unknown field %s; allowed: name, tag, unspelled, values", name, shown(k))
    end
  end
  if seen[name] then fail(family, line, "axis %s stands twice", name) end
  seen[name] = true
  if type(axis.values) ~= "table" or #axis.values == 0 or not is_list(axis.values) then
    fail(family, line, "axis %s: values is %s; allowed: a list of one or more strings and integers", name,
      type(axis.values) == "table" and "no list" or shown(axis.values))
  end
  local tag = axis.tag == nil and "" or axis.tag
  if type(tag) ~= "string" or not tag:find("^[%w_]*$") then
    fail(family, line, "axis %s: tag is %s; allowed: letters, digits, _", name, shown(axis.tag))
  end
  local values_seen, texts, unspelled, known = {}, {}, axis.unspelled, false
  for j, value in ipairs(axis.values) do
    check_value(family, line, name, value, values_seen)
    texts[j] = tostring(value)
    known = known or value == unspelled
  end
  if unspelled ~= nil and not known then
    fail(family, line, "axis %s: unspelled is %s; allowed: one of the values", name, shown(unspelled))
  end
  return { name = name, values = axis.values, texts = texts, tag = tag, unspelled = unspelled, line = line }
end

local function check_axes(family, kind, axes, seen)
  if not is_list(axes) then fail(family, field_line(family, kind), "%s is no list of axes", kind) end
  local checked = {}
  for i, axis in ipairs(axes) do checked[i] = check_axis(family, kind, i, axis, seen) end
  return checked
end

local function check_names(family, field, names, most)
  local line, seen = field_line(family, field), {}
  if not is_list(names) or #names > most then
    fail(family, line, "%s holds %d entries; allowed: a list of at most %d names", field, #names, most)
  end
  for _, name in ipairs(names) do
    if type(name) ~= "string" or not name:find("^%l[%l%d_]*$") then
      fail(family, line, "%s: %s is no name; allowed: lower-case letters, digits, _", field, shown(name))
    end
    if seen[name] then fail(family, line, "%s: %s stands twice", field, name) end
    seen[name] = true
  end
  return names
end

local function check_family(family, given)
  for _, k in ipairs(sorted_keys(given, 1)) do
    if not fields[k] then
      local near = nearest(tostring(k), field_names)
      fail(family, field_line(family, tostring(k)), "unknown field %s%s; allowed: %s", shown(k),
        near and " (did you mean " .. near .. "?)" or "", list_text(field_names))
    end
  end
  for _, k in ipairs(field_names) do
    local wanted = fields[k]
    if given[k] == nil and wanted[2] then fail(family, family.line, "missing field %s, a %s", k, wanted[1]) end
    if given[k] ~= nil and type(given[k]) ~= wanted[1] then
      fail(family, field_line(family, k), "field %s is %s; allowed: a %s", k, shown(given[k]), wanted[1])
    end
  end
  if given.name ~= family.name then
    fail(family, field_line(family, "name"), "field name is %q; allowed: %q, the folder's name", given.name, family.name)
  end
  local seen = {}
  family.required = check_axes(family, "required", given.required, seen)
  family.free = check_axes(family, "free", given.free, seen)
  if #family.required > MAX_REQUIRED then
    fail(family, field_line(family, "required"), "required holds %d axes; allowed: at most %d", #family.required,
      MAX_REQUIRED)
  end
  local combinations = 1
  for _, list in ipairs({ family.required, family.free }) do
    for _, axis in ipairs(list) do
      combinations = combinations * #axis.values
      if combinations > MAX_COMBINATIONS then
        fail(family, axis.line, "axis %s: with it there are %d combinations; allowed: at most %d", axis.name, combinations,
          MAX_COMBINATIONS)
      end
    end
  end
  family.facts = check_names(family, "facts", given.facts, MAX_FACTS)
  family.coords = check_names(family, "coords", given.coords or {}, MAX_COORDS)
  for k, wanted in next, fields do
    if wanted[1] == "function" then family[k] = given[k] end
  end
end

local function load_family(name, source, path)
  local family = { name = name, source = source, path = path, line = 1 }
  local handle, env
  env = environment({
    include = function(...) return family.include(...) end,
    family = function(given)
      -- A tail call leaves no frame to ask, so the text says where it is.
      family.line = line_with(family, "%f[%w_]family%f[^%w_]%s*[({%w]", 1)
      if handle then fail(family, family.line, "family is called twice; allowed: once a file") end
      if type(given) ~= "table" then fail(family, family.line, "family is given %s; allowed: a table", shown(given)) end
      handle = {}
      check_family(family, given)
      return handle
    end,
  })
  family.include = sandbox.includer(env)
  local result = core.load(source, path, env)()
  if handle == nil or result ~= handle then
    fail(family, family.line, "the file returns %s; allowed: return family { ... }", shown(result))
  end
  return family
end

return { load = load_family, fail = fail, line_of = line_of, shown = shown, list_text = list_text }
