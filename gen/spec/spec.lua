-- The specialization space: family files read and checked, their variants enumerated and named. Embedded in the program;
-- gen/spec/spec.c is the only caller.
local core, sandbox = ... -- from C: glob(pattern, name), load(source, chunk, env), line_of(function, path), fail(message)
local spec = {}

local next, type, tostring, select, error = next, type, tostring, select, error
local rawget, setmetatable = rawget, setmetatable
local concat, sort, format = table.concat, table.sort, string.format
local sorted_keys, read_only, copy = sandbox.sorted_keys, sandbox.read_only, sandbox.copy
local nearest, names_of, environment, base = sandbox.nearest, sandbox.names_of, sandbox.environment, sandbox.base

-- Limits of runtime/format/product.h, and of what can be enumerated in minutes.
local MAX_REQUIRED, MAX_FACTS, MAX_COORDS, MAX_COMBINATIONS = 8, core.max_facts, core.max_coords, 10000000

-- ---- family files -----------------------------------------------------------------------------------------------------

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
  if unspelled ~= nil and (kind ~= "free" or not known) then
    fail(family, line, "axis %s: unspelled is %s; allowed: one of the values, of a free axis", name, shown(unspelled))
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

function spec.load_family(name, source, path)
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

-- ---- variants ---------------------------------------------------------------------------------------------------------

function spec.arch(values)
  local what = "arch"
  local unknown = function(_, k)
    error(format("arch has no field %s; allowed: %s", shown(k), list_text(names_of(values))), 2)
  end
  return { values = values, shown = read_only(setmetatable(values, { __index = unknown }), what) }
end

-- What family.lua's functions see as `v`: a view of `values`, where `allowed` names say what it has.
local function view(values, allowed)
  return read_only(setmetatable(values, {
    __index = function(_, k)
      error(format("there is no axis %s; allowed: %s", shown(k), list_text(allowed)), 2)
    end,
  }), "v")
end

local function axis_names(...)
  local names = {}
  for i = 1, select("#", ...) do
    for _, axis in ipairs((select(i, ...))) do names[#names + 1] = axis.name end
  end
  return names
end

-- The one place where names are spelled.
local function spell(axes, values)
  local parts = {}
  for _, axis in ipairs(axes) do
    local value = rawget(values, axis.name)
    if value ~= axis.unspelled then parts[#parts + 1] = axis.tag .. tostring(value) end
  end
  return concat(parts, "_")
end

local function group_name(family, values)
  local key = spell(family.required, values)
  return key == "" and family.name or family.name .. "_" .. key
end

local function variant_name(family, arch, values)
  local free = spell(family.free, values)
  return group_name(family, values) .. "__" .. arch.values.tag .. (free == "" and "" or "_" .. free)
end

local function pairs_text(axes, values)
  local parts = {}
  for i, axis in ipairs(axes) do parts[i] = axis.name .. "=" .. tostring(rawget(values, axis.name)) end
  return concat(parts, ";")
end

local function values_text(axes, values)
  local parts = {}
  for i, axis in ipairs(axes) do parts[i] = tostring(rawget(values, axis.name)) end
  return concat(parts, ",")
end

local plan_fields = { threads = { 1, 1024 }, shared = { 0, 1 << 20 }, cluster = { 1, 16 }, max_registers = { 1, 255 } }
local plan_names = { "cluster", "facts", "max_registers", "shared", "threads" }

local function check_plan_facts(family, line, name, facts)
  if type(facts) ~= "table" then fail(family, line, "plan of %s: facts is %s; allowed: a table", name, shown(facts)) end
  local list = {}
  for i, fact in ipairs(family.facts) do
    local x = facts[fact]
    if math.type(x) ~= "integer" or x < -0x80000000 or x > 0x7fffffff then
      fail(family, line, "plan of %s: fact %s is %s; allowed: an integer of 32 bits", name, fact, shown(x))
    end
    list[i] = x
  end
  for _, k in ipairs(sorted_keys(facts, 1)) do
    local known = false
    for _, fact in ipairs(family.facts) do known = known or fact == k end
    if not known then
      fail(family, line, "plan of %s: unknown fact %s; allowed, as the field facts lists them: %s", name, shown(k),
        list_text(family.facts))
    end
  end
  return list
end

local function check_plan(family, arch, name, plan)
  local line = line_of(family, family.plan)
  if type(plan) ~= "table" then fail(family, line, "plan of %s is %s; allowed: a table", name, shown(plan)) end
  for _, k in ipairs(sorted_keys(plan, 1)) do
    if not plan_fields[k] and k ~= "facts" then
      fail(family, line, "plan of %s: unknown field %s; allowed: %s", name, shown(k), list_text(plan_names))
    end
  end
  for _, k in ipairs(plan_names) do
    local range, x = plan_fields[k], plan[k]
    if range and (math.type(x) ~= "integer" or x < range[1] or x > range[2]) then
      fail(family, line, "plan of %s: %s is %s; allowed: an integer from %d to %d", name, k, shown(x), range[1], range[2])
    end
  end
  if plan.threads % 32 ~= 0 then
    fail(family, line, "plan of %s: threads is %d; allowed: a multiple of 32", name, plan.threads)
  end
  if plan.shared > arch.values.shared_per_block then
    fail(family, line, "plan of %s: shared is %d; allowed on %s: at most %d (legal() should say so)", name, plan.shared,
      arch.values.name, arch.values.shared_per_block)
  end
  if plan.cluster > 1 and not arch.values.cluster then
    fail(family, line, "plan of %s: cluster is %d; allowed on %s: 1 (legal() should say so)", name, plan.cluster,
      arch.values.name)
  end
  return check_plan_facts(family, line, name, plan.facts)
end

local function make_variant(family, arch, values, v)
  local name = variant_name(family, arch, values)
  local plan = family.plan(v, arch.shown)
  local facts = check_plan(family, arch, name, plan)
  local template = family.template(v, arch.shown)
  if type(template) ~= "string" or not template:find("^%w[%w_.-]*$") then
    fail(family, line_of(family, family.template), "template of %s is %s; allowed: the name of a file in the folder", name,
      shown(template))
  end
  local prefix = family.symbol and family.symbol(v) or ""
  if type(prefix) ~= "string" or not prefix:find("^[%a_]?[%w_]*$") then
    fail(family, line_of(family, family.symbol), "symbol of %s is %s; allowed: the start of a C name", name, shown(prefix))
  end
  local fallback = family.fallback(v)
  if type(fallback) ~= "boolean" then
    fail(family, line_of(family, family.fallback), "fallback of %s is %s; allowed: true or false", name, shown(fallback))
  end
  return {
    family = family, arch = arch, values = copy(values, {}), name = name, symbol = prefix .. name,
    group = group_name(family, values), group_values = values_text(family.required, values),
    required = pairs_text(family.required, values), free = pairs_text(family.free, values),
    template = family.name .. "/" .. template, threads = plan.threads, shared = plan.shared, cluster = plan.cluster,
    max_registers = plan.max_registers, facts = facts, fallback = fallback,
  }
end

-- What the family's functions are being asked about, for messages of errors within them.
local asked

function spec.context()
  return asked and asked() or ""
end

local function each(axes, values, i, visit)
  local axis = axes[i]
  if axis == nil then return visit() end
  local name = axis.name
  for _, value in ipairs(axis.values) do
    values[name] = value
    each(axes, values, i + 1, visit)
  end
end

local function check_reason(family, fn, what, answer)
  if answer == true then return nil end
  if type(answer) ~= "string" or answer == "" then
    fail(family, line_of(family, fn), "%s() returned %s for %s; allowed: true, or a sentence that says why not", what,
      shown(answer), spec.context())
  end
  return answer
end

local function count_reason(reasons, reason)
  reasons[reason] = (reasons[reason] or 0) + 1
end

local function most_frequent(reasons)
  local best
  for _, reason in ipairs(sorted_keys(reasons, 1)) do
    if not best or reasons[reason] > reasons[best] then best = reason end
  end
  return best
end

local function check_key(family, arch, group, variants, first, reasons)
  if #variants < first then
    fail(family, line_of(family, family.legal), "legal() leaves %s with no variant on %s; most often: %s", group,
      arch.values.name, most_frequent(reasons) or "no combination at all")
  end
  local names = {}
  for i = first, #variants do
    if variants[i].fallback then names[#names + 1] = variants[i].name end
  end
  if #names ~= 1 then
    fail(family, line_of(family, family.fallback), "%s on %s has %d fallback variants%s; allowed: exactly one", group,
      arch.values.name, #names, #names > 0 and " (" .. list_text({ names[1], names[2] }) .. ", ...)" or "")
  end
end

-- Every combination: visit(values, v, reason) with reason nil for a legal one. key_done(values, refusal) after each key.
local function walk(family, arch, visit, key_done)
  local values, key_values = {}, {}
  local v = view(values, axis_names(family.required, family.free))
  local key_v = view(key_values, axis_names(family.required))
  local legal, shown_arch = family.legal, arch.shown
  local inside = "serves"
  asked = function()
    if inside == "serves" then return format("%s on %s", pairs_text(family.required, key_values), arch.values.name) end
    return format("%s;%s on %s", pairs_text(family.required, values), pairs_text(family.free, values), arch.values.name)
  end
  each(family.required, key_values, 1, function()
    for k, x in next, key_values do values[k] = x end
    inside = "serves"
    local refused = family.serves and check_reason(family, family.serves, "serves", family.serves(key_v, shown_arch))
    inside = "legal"
    if refused then
      key_done(key_values, refused)
      return
    end
    each(family.free, values, 1, function()
      local answer = legal(v, shown_arch)
      if answer == true then
        visit(values, v, nil)
      else
        visit(values, v, check_reason(family, legal, "legal", answer))
      end
    end)
    key_done(key_values, nil)
  end)
  asked = nil
end

-- What C keeps of a family.
function spec.describe(family)
  local axes, combinations = {}, 1
  for _, list in ipairs({ family.required, family.free }) do
    for _, axis in ipairs(list) do
      axes[#axes + 1] = axis.name .. "=" .. concat(axis.texts, ",")
      combinations = combinations * #axis.values
    end
  end
  return {
    required = concat(axis_names(family.required), ","), num_required = #family.required, axes = axes,
    facts = concat(family.facts, ","), num_facts = #family.facts, coords = concat(family.coords, ","),
    combinations = combinations,
  }
end

function spec.enumerate(family, arch)
  local variants, reasons, unserved, first = {}, {}, {}, 1
  walk(family, arch, function(values, v, reason)
    if reason then
      count_reason(reasons, reason)
    else
      variants[#variants + 1] = make_variant(family, arch, values, v)
    end
  end, function(values, refused)
    local group = group_name(family, values)
    if refused then
      unserved[#unserved + 1] = { group = group, reason = refused }
    else
      check_key(family, arch, group, variants, first, reasons)
    end
    first, reasons = #variants + 1, {}
  end)
  return variants, unserved
end

-- ---- why --------------------------------------------------------------------------------------------------------------

-- How many combinations `wanted(values, name)` holds for are legal, and why the others are not.
function spec.why(family, arch, wanted)
  local legal, total, reasons = {}, 0, {}
  walk(family, arch, function(values, _, reason)
    local name = variant_name(family, arch, values)
    if not wanted(values, name) then return end
    total = total + 1
    if reason then
      count_reason(reasons, reason)
    else
      legal[#legal + 1] = name
    end
  end, function(key_values, refused)
    if not refused then return end
    -- Asked for by its key's name or, as any other that does not exist, by its own.
    local found, values = wanted(key_values, group_name(family, key_values)), copy(key_values, {})
    each(family.free, values, 1, function() found = found or wanted(values, variant_name(family, arch, values)) end)
    if found then
      total = total + 1
      count_reason(reasons, refused)
    end
  end)
  local list = {}
  for _, reason in ipairs(sorted_keys(reasons, 1)) do list[#list + 1] = { reason = reason, count = reasons[reason] } end
  sort(list, function(a, b) return a.count > b.count or a.count == b.count and a.reason < b.reason end)
  return legal, total, list
end

function spec.name_filter(pattern)
  return function(_, name) return core.glob(pattern, name) end
end

-- A filter out of { axis = value } texts. Unknown axes and values are told with what is allowed.
function spec.axis_filter(family, conditions)
  local axes = {}
  for _, list in ipairs({ family.required, family.free }) do
    for _, axis in ipairs(list) do axes[axis.name] = axis end
  end
  for _, condition in ipairs(conditions) do
    local axis = axes[condition.axis]
    if not axis then
      return nil, format("family %s has no axis %q; allowed: %s", family.name, condition.axis,
        list_text(axis_names(family.required, family.free)))
    end
    local known = false
    for _, text in ipairs(axis.texts) do known = known or text == condition.value end
    if not known then
      return nil, format("axis %s of family %s has no value %q; allowed: %s", axis.name, family.name, condition.value,
        list_text(axis.texts))
    end
  end
  return function(values)
    for _, condition in ipairs(conditions) do
      local value = rawget(values, condition.axis)
      if value ~= nil and tostring(value) ~= condition.value then return false end
    end
    return true
  end
end

-- ---- what a template sees ---------------------------------------------------------------------------------------------

function spec.template_environment(variant)
  local family, arch = variant.family, variant.arch
  local given = {
    NAME = variant.symbol, THREADS = variant.threads, SHARED = variant.shared, CLUSTER = variant.cluster,
    MAX_REGISTERS = variant.max_registers, ARCH = arch.shown, f32 = base.f32, include = true,
  }
  for name, value in next, variant.values do
    local upper = name:upper()
    if given[upper] ~= nil then fail(family, family.line, "axis %s hides the template's own name %s", name, upper) end
    given[upper] = value
  end
  if family.constants then
    local values = copy(variant.values, {})
    asked = function() return variant.name end
    local constants = family.constants(view(values, axis_names(family.required, family.free)), arch.shown)
    asked = nil
    local line = line_of(family, family.constants)
    if type(constants) ~= "table" then
      fail(family, line, "constants of %s is %s; allowed: a table of names", variant.name, shown(constants))
    end
    for _, k in ipairs(sorted_keys(constants, 1)) do
      if type(k) ~= "string" or not k:find("^[%a_][%w_]*$") then
        fail(family, line, "constants of %s: %s is no name", variant.name, shown(k))
      end
      if given[k] ~= nil or rawget(base, k) ~= nil then
        fail(family, line, "constants of %s: %s is already the name of something else", variant.name, k)
      end
      given[k] = constants[k]
    end
  end
  local env = environment(given)
  given.include = sandbox.includer(env)
  return env
end

return spec
