-- The specialization space: the variants of the families that family.lua read, enumerated and named. Embedded in the
-- program; gen/spec/spec.c is the only caller.
local core, sandbox, files = ... -- from C: glob(pattern, name); what sandbox.lua and family.lua return
local spec = { load_family = files.load }

local next, type, tostring, select, error = next, type, tostring, select, error
local rawget, setmetatable = rawget, setmetatable
local concat, sort, format = table.concat, table.sort, string.format
local sorted_keys, read_only, copy = sandbox.sorted_keys, sandbox.read_only, sandbox.copy
local names_of, environment, base = sandbox.names_of, sandbox.environment, sandbox.base
local fail, line_of, shown, list_text = files.fail, files.line_of, files.shown, files.list_text

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
  if type(template) ~= "string" or not (template:find("^%w[%w_.-]*$") or template:find("^%w[%w_]*/%w[%w_.-]*$")) then
    fail(family, line_of(family, family.template), "template of %s is %s; allowed: the name of a file in the folder, or FOLDER/FILE of another family's",
      name, shown(template))
  end
  local path = template:find("/", 1, true) and template or family.name .. "/" .. template
  local prefix = family.symbol and family.symbol(v) or ""
  if type(prefix) ~= "string" or not prefix:find("^[%a_]?[%w_]*$") then
    fail(family, line_of(family, family.symbol), "symbol of %s is %s; allowed: the start of a C name", name, shown(prefix))
  end
  local fallback = family.fallback(v)
  if type(fallback) ~= "boolean" then
    fail(family, line_of(family, family.fallback), "fallback of %s is %s; allowed: true or false", name, shown(fallback))
  end
  local trial = family.trial ~= nil and family.trial(v)
  if type(trial) ~= "boolean" then
    fail(family, line_of(family, family.trial), "trial of %s is %s; allowed: true or false", name, shown(trial))
  end
  return {
    family = family, arch = arch, values = copy(values, {}), name = name, symbol = prefix .. name,
    group = group_name(family, values), group_values = values_text(family.required, values),
    required = pairs_text(family.required, values), free = pairs_text(family.free, values),
    template = path, threads = plan.threads, shared = plan.shared, cluster = plan.cluster,
    max_registers = plan.max_registers, facts = facts, fallback = fallback, trial = trial,
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

-- A filter out of { axis = value } texts. Unknown axes and values are named with what is allowed.
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
