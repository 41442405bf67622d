-- Kimi Delta Attention, prefill: the launch that is its own, the recurrence between chunks. The other one, kda_intra, is a
-- part. The space is kda_inter's, and a kernel that does all of it in one launch:
--
--   kernel  one    groups of warps hold a state, four teams of two warps make its operands, 16 tokens at a time (one.cuh)
--           pair   clusters of two blocks, which share a state and the making
--   groups         of one: 1, and two blocks share a state and make all of its operands each, or 2
local space = include("kda/space.lua")
local own = space.family("kda_prefill", true)
local two = { legal = own.legal, plan = own.plan, template = own.template }

own.free[1] = { name = "kernel", values = { "mma", "wgmma", "one", "pair" } }
own.facts = { "groups", "wgmma", "dependent", "one" }

local function whole(v) return v.kernel == "one" or v.kernel == "pair" end

-- Raw inputs of two chunks a team, and operands of one, of a pair also of the other block's teams, with v; then outputs, norms and
-- barriers (shape.cuh).
local function one_shared(v)
  if v.kernel == "pair" then return 6 * 21504 + 6 * 15360 + 3 * 2304 + 2048 + 3 * 192 + 3 * 40 + 8 end
  return 8 * 21248 + 4 * 14336 + v.groups * 2048 + 4 * 192 + 4 * 24 + 8
end

function own.legal(v, arch)
  if not whole(v) then return two.legal(v, arch) end
  if not arch.wgmma then return "wgmma is an instruction of sm_90a" end
  if v.state_pool ~= "none" then return "one launch has no pools of states" end
  if v.head_dim ~= 128 then return "its teams have two warps of 64 channels" end
  if v.kernel == "pair" and v.groups ~= 1 then return "each block of a pair has a group" end
  if v.stages ~= 1 then return "each team has the operands of one chunk" end
  return true
end

function own.plan(v, arch)
  if not whole(v) then
    local plan = two.plan(v, arch)
    plan.facts.one = 0
    return plan
  end
  local threads = 128 * v.groups + (v.kernel == "pair" and 192 or 256)
  return {
    threads = threads,
    shared = one_shared(v),
    cluster = v.kernel == "pair" and 2 or 1,
    max_registers = 65536 // threads // 8 * 8, -- of two groups at launch: they trade them then
    facts = { groups = v.groups, wgmma = 1, dependent = 1, one = 1 },
  }
end

function own.template(v) return whole(v) and "kda_prefill_one.cu.in" or two.template(v) end

return family(own)
