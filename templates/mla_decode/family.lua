-- MLA decode over a paged latent cache: what variants exist, and why not others.
--
-- A block handles a tile of `q` packed rows (query token x head) and walks over the cache in tiles of `kv` rows. All 512
-- columns of the output stay in fp32 registers, so they are partitioned over the block's warps.
--
--   kernel  mma    warps with mma.sync, tiles brought by 16-byte cp.async: every architecture, any page size
--           wgmma  two warp groups that own the scores of every other tile and half of the output's columns each, and a
--                  producer group: sm_90a
--           wgmmaC  the same in clusters of C blocks that share a request and put it together in shared memory
--           rgmma   8-bit caches: bytes are left operands, converted in registers, of transposed products
--           rsums   the same with queries in e4m3 and up to 32 packed rows, and a score is three sums
--           rsplit  the same for 64 packed rows and queries in e4m3, by a group for the scores and two for the values
--   q       packed rows of a block
--   kv      cache rows of a tile
--   stages  tiles in shared memory
--   qk      shard  the scores of a tile are partitioned, the probabilities gathered through shared memory
--           dup    every owner of output columns computes all scores itself, nothing is exchanged
--   slab    rows whose output columns one warp owns (mma): with 64 values are read from shared memory once, with 32 twice
--   load    cpasync  every thread copies (mma)
--           tma      TMA loads boxes of whole pages' rows (wgmma, page_size a multiple or a divisor of 64)
--           gather   the producer's threads copy 16 bytes each (wgmma, any page size)
--   ahead   tiles that TMA prefetches to L2 before there is room for them (wgmma with tma)
--   merge   apart  pieces of requests that are cut are added up by mla_merge, another launch
--           last   by the block that ends the last of them (wgmma with tma)
local LATENT, BLOCK_WARPS = 512, 8
local CONTROL, ROLES_CONTROL = 2048, 2304 -- of mma: schedule, maxima, factors

-- Warps have roles, four the scores, eight the output and the copies: mla_decode_mma_roles.cu.in.
local function mma_roles(v, arch)
  return v.kernel == "mma" and v.qk == "shard" and v.q == 64 and v.cache == "same" and arch.cc >= 90
end

local function mma_stage_bytes(v)
  return v.kv * (LATENT + v.rope) * (v.cache == "e4m3" and 1 or 2)
end

local function mma_shared(v, arch, overlay)
  local q_bytes = v.q * (LATENT + v.rope) * 2
  -- Scores in fp32 on their way between the two parts of the warps, later probabilities; with roles these alone.
  local exchange = v.qk == "shard" and v.q * v.kv * ((overlay or mma_roles(v, arch)) and 2 or 4) or 0
  return q_bytes + v.stages * mma_stage_bytes(v) + exchange + (mma_roles(v, arch) and ROLES_CONTROL or CONTROL)
end

-- Whether half of the scores travel through the tile's rotary keys, which are dead by then: where that makes room for a
-- second block.
local function mma_overlay(v, arch)
  return v.q == 32 and v.qk == "shard" and v.rope == 64 and v.cache == "same"
    and 2 * (mma_shared(v, arch, false) + 1024) > arch.shared_per_sm and 2 * (mma_shared(v, arch, true) + 1024) <= arch.shared_per_sm
end

-- Blocks of an SM: small ones come in twos, so that one's products run beside the other's softmax.
local function mma_blocks(v, arch)
  if v.q == 32 and (v.cache ~= "same" or arch.cc ~= 90) then return 1 end -- 128 registers are not enough everywhere
  return v.q <= 32 and v.qk == "shard" and 2 * (mma_shared(v, arch, mma_overlay(v, arch)) + 1024) <= arch.shared_per_sm and 2 or 1
end

-- What the space leaves out to stay small; the arithmetic is in docs/perf/mla_decode.md.
local function mma_ill_sized(v, arch)
  if v.qk == "dup" then
    if v.q == 16 and v.kv == 16 then return "16 rows leave room for tiles of 32" end
    if v.q < 64 and v.kv == 64 then return "all warps reading 64 keys each: that is for comparison, with 64 rows" end
    if v.cache == "e4m3" and v.kv == 64 then return "every warp converts every key: with 64 of them that is all it does" end
  elseif v.slab < 32 and v.q > 16 then
    return "slabs of 16 rows read the values as often as there are slabs"
  elseif v.cache == "e4m3" and v.slab < v.q then
    return "each slab would convert the values anew"
  elseif mma_roles(v, arch) and v.slab ~= 32 then
    return "beside 128 registers of output there are not enough for fragments of 64 rows"
  end
  if v.stages == 1 and not (v.qk == "dup" and v.q == 64 and v.kv == 16) then -- the fallback's shape
    local two = mma_shared({ kernel = v.kernel, q = v.q, rope = v.rope, cache = v.cache, kv = v.kv, qk = v.qk, stages = 2 }, arch, false)
    if two <= arch.shared_per_block then return "a second stage fits: copies run beside the products" end
  end
  return nil
end

local function mma_legal(v, arch)
  if v.cache == "e4m3q" then return "queries in e4m3 are multiplied by wgmma alone" end
  if v.ahead > 0 then return "prefetches to L2 are issued by TMA loads alone" end
  if v.stages > 3 then return "more than three tiles were never faster with mma.sync" end
  if v.load ~= "cpasync" then return "warps with mma.sync copy 16 bytes a thread, which suits every page size" end
  if v.slab > v.q then return "a slab is rows of the tile" end
  if v.qk == "dup" and v.slab > 16 then return "a warp that computes all scores of its slab has registers for 16 rows of them" end
  if v.qk == "shard" then
    if v.kv < 32 then return "a tile of 16 columns is one fragment: there is nothing to share" end
    if v.cache == "e4m3" and v.kv // (v.q == 16 and 4 or 2) < 16 then
      return "fragments of 8-bit keys are 16 columns wide: the warps would have less each"
    end
  end
  local problem = mma_ill_sized(v, arch)
  if problem then return problem end
  local need = mma_shared(v, arch, mma_overlay(v, arch))
  if need > arch.shared_per_block then
    return string.format("needs %d bytes of shared memory (queries %d, %d x %d for tiles), %s allows %d", need,
      v.q * (LATENT + v.rope) * 2, v.stages, mma_stage_bytes(v), arch.name, arch.shared_per_block)
  end
  return true
end

local WGMMA_CELL = 64 * 64 * 2 -- bytes of 64 rows x 64 columns
local WGMMA_CONTROL = 2048     -- barriers, maxima, sums, schedule

-- Queries, and two stages that hold nine cells whatever the RoPE part: the last one holds probabilities, too.
local function wgmma_shared(v)
  return ((LATENT + v.rope) // 64 + 2 * 9) * WGMMA_CELL + WGMMA_CONTROL
end

-- Queries and probabilities of two or four tiles in fp16, stages of raw bytes, sums, rows' numbers.
local function rgmma_shared(v)
  local q_bytes = v.cache == "e4m3q" and LATENT + (v.rope > 0 and 128 or 0) or (LATENT + v.rope) * 2
  return v.q * (q_bytes + (v.q == 64 and 2 or 4) * 128) + v.stages * 64 * (LATENT + v.rope) + (v.q == 64 and 16384 or 0) + 2048 + v.q * 96
end

-- Kernels whose left operands are made of bytes in registers.
local of_bytes = { rgmma = true, rsums = true, rsplit = true }

-- Tiles that fit beside the queries.
local rgmma_stages = { [16] = 5, [32] = 4, [64] = 3 }

local function rgmma_legal(v, arch)
  if not arch.wgmma then return "wgmma is an instruction of sm_90a" end
  if v.cache == "same" then return "a cache of 16 bits needs no conversion" end
  if v.kernel == "rsums" and v.cache ~= "e4m3q" then return "sums of 16-bit products lose nothing" end
  if v.kernel == "rsums" and v.q == 64 then return "beside 128 registers of output there are not enough for two sums: rsplit" end
  if v.kernel == "rsplit" and v.cache ~= "e4m3q" then return "one group that converts keys keeps the others waiting" end
  if v.kernel == "rsplit" and v.q ~= 64 then return "with fewer packed rows each group has tiles of its own" end
  if v.slab ~= 16 or v.kv ~= 64 then return "a warp group's instruction is 64 keys, 16 a warp" end
  if v.stages ~= rgmma_stages[v.q] + (v.cache == "e4m3q" and v.q > 16 and 1 or 0) then return "tiles fill what queries leave of shared memory" end
  if v.qk ~= "shard" then return "a tile's scores are computed once" end
  if v.load == "cpasync" then return "a producer group loads: tma or gather" end
  if v.ahead > 0 then return "three tiles and more are on their way already" end
  return true
end

-- Blocks of a cluster.
local teams = { wgmma = 1, wgmma2 = 2, wgmma3 = 3, wgmma6 = 6 }

local function wgmma_legal(v, arch)
  if not arch.wgmma then return "wgmma is an instruction of sm_90a" end
  if v.cache ~= "same" then return "wgmma takes both operands in the type of the queries from shared memory" end
  if v.q ~= 64 or v.slab ~= 16 then return "a warp group's instruction is 64 rows, 16 a warp" end
  if v.kv ~= 64 or v.stages ~= 2 then return "beside the queries there is room for two tiles of 64 rows, and less keeps the tensor cores waiting" end
  if v.qk ~= "shard" then return "the groups take tiles in turn and exchange probabilities" end
  if v.load == "cpasync" then return "a producer group loads: tma or gather" end
  if v.load == "gather" and v.ahead > 0 then return "prefetches to L2 are issued by TMA loads alone" end
  if teams[v.kernel] > 1 and (v.load ~= "tma" or v.ahead > 0) then return "clusters need TMA boxes, without prefetches to L2" end
  return true
end

return family {
  name = "mla_decode",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "cache", values = { "same", "e4m3", "e4m3q" } }, -- e4m3q: queries, too
    { name = "rope", values = { 64, 0 }, tag = "r" },
  },
  free = {
    { name = "kernel", values = { "mma", "wgmma", "wgmma2", "wgmma3", "wgmma6", "rgmma", "rsums", "rsplit" } },
    { name = "q", values = { 16, 32, 64 }, tag = "q" },
    { name = "kv", values = { 16, 32, 64 }, tag = "kv" },
    { name = "stages", values = { 1, 2, 3, 4, 5 }, tag = "st" },
    { name = "qk", values = { "shard", "dup" } },
    { name = "slab", values = { 16, 32, 64 }, tag = "m" },
    { name = "load", values = { "cpasync", "tma", "gather" } },
    { name = "ahead", values = { 0, 2 }, tag = "a" },
    { name = "merge", values = { "apart", "last" }, unspelled = "apart" },
  },
  legal = function(v, arch)
    if v.merge == "last" and (v.kernel ~= "wgmma" or v.load ~= "tma") then return "the block that ends last merges in wgmma with tma" end
    if of_bytes[v.kernel] then return rgmma_legal(v, arch) end
    if teams[v.kernel] then return wgmma_legal(v, arch) end
    return mma_legal(v, arch)
  end,
  -- 8-bit caches go with bf16 in every model that has one.
  serves = function(v, arch)
    if v.cache ~= "same" and v.dtype == "fp16" then return "an e4m3 cache is offered with queries in bf16, or outputs" end
    if v.cache == "e4m3q" and not arch.wgmma then return "queries in e4m3 need wgmma" end
    return true
  end,
  facts = { "q_rows", "kv_rows", "stages", "shard", "tensor_map", "dependent", "wgmma", "last" },
  coords = { "cache_rows", "requests", "rows", "page" },
  plan = function(v, arch)
    local bytes = of_bytes[v.kernel] or false
    local wgmma = bytes or teams[v.kernel] ~= nil
    return {
      threads = v.kernel == "rsplit" and 512 or (wgmma or mma_roles(v, arch)) and 384 or 32 * BLOCK_WARPS,
      shared = bytes and rgmma_shared(v) or wgmma and wgmma_shared(v) or mma_shared(v, arch, mma_overlay(v, arch)),
      cluster = teams[v.kernel] or 1,
      max_registers = v.kernel == "rsplit" and 128 or (wgmma or mma_roles(v, arch)) and 168 or mma_blocks(v, arch) == 2 and 128 or 255, -- wgmma: before the groups trade them
      facts = {
        q_rows = v.q,
        kv_rows = v.kv,
        stages = v.stages,
        shard = v.qk == "shard" and 1 or 0,
        tensor_map = v.load == "tma" and 1 or 0,
        dependent = arch.cc >= 90 and 1 or 0, -- the templates wait there
        wgmma = bytes and 2 or wgmma and 1 or 0,
        last = v.merge == "last" and 1 or 0,
      },
    }
  end,
  template = function(v, arch)
    if v.kernel == "rsums" then return "mla_decode_rgmma.cu.in" end
    return "mla_decode_" .. (teams[v.kernel] and "wgmma" or v.kernel) .. (mma_roles(v, arch) and "_roles" or "") .. ".cu.in"
  end,
  constants = function(v, arch)
    if v.kernel == "rsplit" then
      -- 65,536 registers in all.
      return { REGISTERS = 176, SCORE_REGISTERS = 136, PRODUCER_REGISTERS = 24 }
    end
    if of_bytes[v.kernel] then
      -- 64,512 registers in all; with 64 packed rows consumers have an output and scores that take 176.
      return { REGISTERS = v.q == 64 and 240 or 224, PRODUCER_REGISTERS = v.q == 64 and 24 or 56 }
    end
    if teams[v.kernel] then
      -- 64,512 registers in all: 2 x 128 consumer threads, 128 producer threads.
      return { REGISTERS = 224, PRODUCER_REGISTERS = 56, TEAM = teams[v.kernel] }
    end
    return {
      OVERLAY = mma_overlay(v, arch),
      BOUNDS = mma_roles(v, arch) and "384, 1" or 32 * BLOCK_WARPS .. ", " .. mma_blocks(v, arch),
    }
  end,
  -- What fits everywhere: 99 KiB.
  trial = function(v) return v.kernel == "rsums" or v.merge == "last" end, -- not timed with every case yet
  fallback = function(v)
    if v.cache == "e4m3q" then return v.kernel == "rgmma" and v.q == 64 and v.load == "gather" end
    return v.kernel == "mma" and v.q == 64 and v.kv == 16 and v.stages == 1 and v.qk == "dup" and v.slab == 16
  end,
}
