-- Gated DeltaNet, prefill: the launches that are its own, the recurrence between chunks and, of the same kernel, what segments
-- do to states. The first one, gdn_intra, is a part. The space is kda_inter's, but with wgmma there are always two groups that
-- compute and one that loads operands, since q, k and v are read where they lie. Where a block has 64 columns of V, the second
-- group makes the outputs (pair.cuh); in the scan both have columns.
local space = include("kda/space.lua")
local own = space.family("gdn_prefill", true)

local function threads(v)
  return v.kernel == "wgmma" and 384 or 128
end

-- Behind the rest: vn' of a chunk, barriers, numbers.
local function shared(v)
  local bytes = space.shared(v)
  if v.kernel ~= "wgmma" or v.groups > 1 then return bytes end
  bytes = (bytes + 1023) // 1024 * 1024 + 8192 + 80
  return v.head_dim > 64 and bytes or (bytes + 1023) // 1024 * 1024 + 8192
end

-- Registers allow a block an SM, so stages cost nothing.
own.legal = function(v, arch)
  local why = space.legal(v, arch)
  if why == true and v.kernel == "wgmma" and v.groups == 1 and v.stages < 3 then return "two stages wait for their loads" end
  return why
end

own.plan = function(v, arch)
  return {
    threads = threads(v),
    shared = shared(v),
    cluster = 1,
    max_registers = math.min(255, 65536 // threads(v) // 8 * 8),
    facts = { groups = v.groups, wgmma = v.kernel == "wgmma" and 1 or 0, dependent = arch.cc >= 90 and 1 or 0 },
  }
end

-- ptxas of CUDA 13.0 spills a register of these on sm_100a and sm_103a, unless it is told that a block an SM is enough.
local constants = own.constants
own.constants = function(v, arch)
  local all = constants and constants(v, arch) or {}
  local crowded = v.dtype == "bf16" and v.head_dim == 64 and v.state_pool == "pool" or
                  v.dtype == "fp16" and v.head_dim == 128 and v.state_pool == "none"
  all.BOUNDS = threads(v) .. (crowded and (arch.cc == 100 or arch.cc == 103) and ", 1" or "")
  return all
end

return family(own)
