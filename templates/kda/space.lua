-- The variants of a launch that goes over a sequence's chunks: kda_inter, and kda_prefill's own one.
--
-- Columns of V are independent, so 64 of them are a group's of four warps, which holds their state, transposed (V x K), in
-- registers from the first chunk to the last.
--
--   kernel  mma    warps with mma.sync, operands brought by cp.async: every architecture
--           wgmma  warp groups, operands loaded by TMA: sm_90a
--   groups  of a block; the operands but u are the same for all
--   stages  chunks whose operands shared memory holds
local space = {}

-- Operands of a chunk: w, qg, kg, A_qk, u, decay.
function space.stage_bytes(v)
  return 3 * 64 * v.head_dim * 2 + 64 * 64 * 2 + v.groups * 64 * 64 * 2 + 1024
end

-- And an output a group, and barriers.
function space.shared(v)
  return v.stages * space.stage_bytes(v) + v.groups * 64 * 64 * 2 * (v.kernel == "wgmma" and 2 or 1) + 128
end

function space.legal(v, arch)
  if v.groups * 64 > v.head_dim then return "a group has 64 columns of V" end
  if v.kernel == "wgmma" then
    if not arch.wgmma then return "wgmma is an instruction of sm_90a" end
  elseif v.groups > 1 then
    return "without TMA blocks of one group fill a GPU"
  end
  if space.shared(v) > arch.shared_per_block then
    return string.format("needs %d bytes of shared memory, %s allows %d", space.shared(v), arch.name, arch.shared_per_block)
  end
  if v.kernel == "mma" then
    if v.stages > 1 then return "blocks beside each other hide as much as a second stage" end
  elseif v.stages < 2 then
    return "TMA loads run ahead, which takes two stages"
  end
  return true
end

function space.threads(v)
  -- A producer warp issues the copies; beside two groups it is one of four, for registers are traded by fours.
  return 128 * v.groups + (v.kernel == "wgmma" and (v.groups > 1 and 128 or 32) or 0)
end

-- Are states in pools, and may there be checkpoints? Kernels for that are beside the others, which they would change.
space.state_pool = { name = "state_pool", values = { "none", "pool" }, unspelled = "none" }

-- What they say of themselves alike; `name` is the family's, `pools` are there or not.
function space.family(name, pools)
  return {
    name = name,
    required = {
      { name = "dtype", values = { "bf16", "fp16" } },
      { name = "head_dim", values = { 64, 128 }, tag = "d" },
      pools and space.state_pool or nil,
    },
    free = {
      { name = "kernel", values = { "mma", "wgmma" } },
      { name = "groups", values = { 1, 2 }, tag = "g" },
      { name = "stages", values = { 1, 2, 3 }, tag = "st" },
    },
    legal = space.legal,
    facts = { "groups", "wgmma", "dependent" },
    coords = { "states", "seq_len" },
    plan = function(v, arch)
      return {
        threads = space.threads(v),
        shared = space.shared(v),
        cluster = 1,
        max_registers = math.min(255, 65536 // space.threads(v) // 8 * 8),
        facts = { groups = v.groups, wgmma = v.kernel == "wgmma" and 1 or 0, dependent = arch.cc >= 90 and 1 or 0 },
      }
    end,
    template = function(v) return name .. ".cu.in" end,
    fallback = function(v) return v.kernel == "mma" end,
  }
end

return space
