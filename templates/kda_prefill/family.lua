-- Kimi Delta Attention, prefill: the launch that is its own, the recurrence between chunks. The other one, kda_intra, is a
-- part. The space is kda_inter's, and a kernel that does all of it in one launch:
--
--   kernel  one    groups of warps hold a state, four teams of two warps make its operands, 16 tokens at a time (one.cuh)
--   groups         of one: 1, and two blocks share a state, or 2
local space = include("kda/space.lua")
local own = space.family("kda_prefill")
local two = { legal = own.legal, plan = own.plan, template = own.template }

own.free[1] = { name = "kernel", values = { "mma", "wgmma", "one" } }
own.facts = { "groups", "wgmma", "dependent", "one" }

-- Raw inputs of two chunks a team, and operands of one; then outputs, and barriers.
local ONE_SHARED = 8 * 21248 + 4 * 14336 + 8 * 512 + 896

function own.legal(v, arch)
  if v.kernel ~= "one" then return two.legal(v, arch) end
  if not arch.wgmma then return "wgmma is an instruction of sm_90a" end
  if v.head_dim ~= 128 then return "its teams have two warps of 64 channels" end
  if v.stages ~= 1 then return "each team has the operands of one chunk" end
  return true
end

function own.plan(v, arch)
  if v.kernel ~= "one" then
    local plan = two.plan(v, arch)
    plan.facts.one = 0
    return plan
  end
  return {
    threads = 128 * v.groups + 256,
    shared = ONE_SHARED,
    cluster = 1,
    max_registers = v.groups > 1 and 128 or 168, -- at launch; two groups then trade them
    facts = { groups = v.groups, wgmma = 1, dependent = 1, one = 1 },
  }
end

function own.template(v) return v.kernel == "one" and "kda_prefill_one.cu.in" or two.template(v) end

return family(own)
