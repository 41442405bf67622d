-- Gated DeltaNet, prefill: the launches that are its own, the recurrence between chunks and, of the same kernel, what segments
-- do to states. The first one, gdn_intra, is a part. The space is kda_inter's, but four warps load operands, since q, k and v
-- are read where they lie.
local space = include("kda/space.lua")
local own = space.family("gdn_prefill")

local function threads(v)
  return 128 * v.groups + (v.kernel == "wgmma" and 128 or 0)
end

own.plan = function(v, arch)
  return {
    threads = threads(v),
    shared = space.shared(v),
    cluster = 1,
    max_registers = math.min(255, 65536 // threads(v) // 8 * 8),
    facts = { groups = v.groups, wgmma = v.kernel == "wgmma" and 1 or 0, dependent = arch.cc >= 90 and 1 or 0 },
  }
end

return family(own)
