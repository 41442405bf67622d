-- Kimi Delta Attention, what segments do to states: what variants exist, and why not others.
--
-- The columns of what is added and of the transition are independent, so 64 of either are a group's of four warps, which holds
-- them, transposed, in registers from the segment's first chunk to its last.
--
--   kernel  mma    warps with mma.sync, operands brought by cp.async: every architecture
--           wgmma  warp groups, operands loaded by TMA: sm_90a
--   groups  of a block; the operands but u are the same for all
--   stages  chunks whose operands shared memory holds
local function stage_bytes(v)
  return 2 * 64 * v.head_dim * 2 + v.groups * 64 * 64 * 2 + 1024 -- w, kg, u, decay
end

local function shared(v)
  return v.stages * stage_bytes(v) + 128
end

local function threads(v)
  -- A producer warp issues the copies; beside two groups it is one of four, for registers are traded by fours.
  return 128 * v.groups + (v.kernel == "wgmma" and (v.groups > 1 and 128 or 32) or 0)
end

return family {
  name = "kda_scan",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
    include("kda/space.lua").state_pool,
  },
  free = {
    { name = "kernel", values = { "mma", "wgmma" } },
    { name = "groups", values = { 1, 2 }, tag = "g" },
    { name = "stages", values = { 1, 2, 4 }, tag = "st" },
  },
  legal = function(v, arch)
    if v.groups * 64 > v.head_dim then return "a block has columns of one kind" end
    if v.kernel == "wgmma" then
      if not arch.wgmma then return "wgmma is an instruction of sm_90a" end
      if v.stages ~= (v.groups > 1 and 4 or 2) then return "blocks of an SM together have four stages" end
    else
      if v.groups > 1 then return "without TMA blocks of one group fill a GPU" end
      if v.stages > 1 then return "blocks beside each other hide as much as a second stage" end
    end
    if shared(v) > arch.shared_per_block then
      return string.format("needs %d bytes of shared memory, %s allows %d", shared(v), arch.name, arch.shared_per_block)
    end
    return true
  end,
  facts = { "groups", "wgmma", "dependent" },
  coords = { "tiles" },
  plan = function(v, arch)
    return {
      threads = threads(v),
      shared = shared(v),
      cluster = 1,
      max_registers = math.min(255, 65536 // threads(v) // 8 * 8),
      facts = { groups = v.groups, wgmma = v.kernel == "wgmma" and 1 or 0, dependent = arch.cc >= 90 and 1 or 0 },
    }
  end,
  template = function(v) return "kda_scan.cu.in" end,
  fallback = function(v) return v.kernel == "mma" end,
}
