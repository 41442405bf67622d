-- Sparse MLA decode: every query token attends the cache rows that its list names. What variants exist, and why not others.
--
-- Heads of one token are the packed rows of a block; otherwise the kernels are mla_decode's (its family.lua has the words).
--
--   kernel  mma    warps with mma.sync: every architecture
--           wgmma  two consumer groups and a producer group: sm_90a
--   cache   same   rows in the queries' type
--           ds     656 bytes: e4m3 with four scales, and the RoPE part in bf16
--   q       packed rows of a block
--   kv      cache rows of a tile
--   stages  tiles in shared memory
--   qk      shard or dup, of mma
local LATENT, BLOCK_WARPS = 512, 8
local MMA_CONTROL = 2048 + 256 -- as mla_decode's, and which rows count

local function mma_shared(v)
  local row = (LATENT + v.rope) * 2
  return v.q * row + v.stages * v.kv * row + (v.qk == "shard" and v.q * v.kv * 4 or 0) + MMA_CONTROL
end

-- Few shapes: this kernel serves where wgmma is not.
local mma_shapes = {
  ["16,32,2,shard"] = true, -- 8 and 16 heads, copies beside the products
  ["32,32,2,shard"] = true,
  ["64,32,2,shard"] = true,
  ["32,32,1,shard"] = true, -- in 99 KiB
  ["64,16,1,dup"] = true, -- the fallback, in 99 KiB
}

local function mma_legal(v, arch)
  if not mma_shapes[v.q .. "," .. v.kv .. "," .. v.stages .. "," .. v.qk] then return "portable shapes are few, one for each number of heads" end
  local need = mma_shared(v)
  if need > arch.shared_per_block then
    return string.format("needs %d bytes of shared memory, %s allows %d", need, arch.name, arch.shared_per_block)
  end
  return true
end

local WGMMA_CELL = 64 * 64 * 2 -- bytes of 64 rows x 64 columns
local WGMMA_CONTROL = 2048 + 64 + 2048 -- as mla_decode's, which rows count, scales of ds

local function wgmma_shared(v)
  return ((LATENT + v.rope) // 64 + 2 * 9) * WGMMA_CELL + WGMMA_CONTROL
end

local function wgmma_legal(v, arch)
  if not arch.wgmma then return "wgmma is an instruction of sm_90a" end
  if v.q ~= 64 then return "a warp group's instruction is 64 rows" end
  if v.kv ~= 64 or v.stages ~= 2 then return "beside the queries there is room for two tiles of 64 rows" end
  if v.qk ~= "shard" then return "the groups take tiles in turn and exchange probabilities" end
  return true
end

return family {
  name = "mla_sparse",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "cache", values = { "same", "ds" } },
    { name = "rope", values = { 64, 0 }, tag = "r" },
  },
  free = {
    { name = "kernel", values = { "mma", "wgmma" } },
    { name = "q", values = { 16, 32, 64 }, tag = "q" },
    { name = "kv", values = { 16, 32, 64 }, tag = "kv" },
    { name = "stages", values = { 1, 2 }, tag = "st" },
    { name = "qk", values = { "shard", "dup" } },
  },
  legal = function(v, arch)
    if v.kernel == "wgmma" then return wgmma_legal(v, arch) end
    return mma_legal(v, arch)
  end,
  serves = function(v, arch)
    if v.cache == "ds" and v.dtype == "fp16" then return "656-byte rows are multiplied in bf16, as their RoPE part is" end
    return true
  end,
  facts = { "q_rows", "kv_rows", "stages", "shard", "dependent", "wgmma" },
  coords = { "entries", "tokens", "rows" },
  plan = function(v, arch)
    local wgmma = v.kernel == "wgmma"
    return {
      threads = wgmma and (v.cache == "ds" and 512 or 384) or 32 * BLOCK_WARPS,
      shared = wgmma and wgmma_shared(v) or mma_shared(v),
      cluster = 1,
      max_registers = wgmma and (v.cache == "ds" and 128 or 168) or 255, -- wgmma: before the groups trade them
      facts = {
        q_rows = v.q,
        kv_rows = v.kv,
        stages = v.stages,
        shard = v.qk == "shard" and 1 or 0,
        dependent = arch.cc >= 90 and 1 or 0, -- the templates wait there
        wgmma = wgmma and 1 or 0,
      },
    }
  end,
  template = function(v, arch) return "mla_sparse_" .. v.kernel .. ".cu.in" end,
  constants = function(v, arch)
    if v.kernel == "wgmma" then
      -- 64,512 registers in all: 2 x 128 consumer threads, 128 producer threads; of ds 65,536 and 256 that convert.
      return { REGISTERS = 224, PRODUCER_REGISTERS = v.cache == "ds" and 32 or 56 }
    end
    return { SLAB = v.qk == "dup" and 16 or v.q == 16 and 16 or 32, BOUNDS = 32 * BLOCK_WARPS .. ", 1" }
  end,
  -- What fits everywhere: 99 KiB.
  fallback = function(v) return v.kernel == "mma" and v.q == 64 and v.qk == "dup" end,
}
