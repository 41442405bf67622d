-- Attention over paged caches: what variants exist, and why not others. The arithmetic is in docs/perf/attn_paged.md.
--
--   kernel  stream  a warp, or a team of warps, has keys and a ring of tiles of its own: every architecture, any page
--           wgmma   two consumer warpgroups of 64 rows share blocks of 128 keys that a producer warp loads by TMA: sm_90a,
--                   pages that boxes of at least eight rows divide
--           split   two consumer warpgroups take blocks of keys in turn, each for the same 64 rows: sm_90a, the same pages
--           mma     four warps of 16 rows share blocks of 64 keys: every architecture, any page; many rows where there is no wgmma
--           direct  each unit is as many blocks as every other, so that none asks for the others' lengths: sm_90a, for
--                   batches of much the same lengths
--   rows    packed rows of a warp: query tokens x query heads of a key head, 8 at least
--   team    warps that share their keys, each with rows of its own: row tiles of rows x team
--   warps   of a block
--   stages  tiles of a team's ring, each of 16 (of narrow keys 32) keys and values
--   blocks  2: a CTA pair does twice the rows, and loads keys and values once for both (wgmma); or its CTAs take blocks of keys in turn
--           (split); of direct those of a cluster, that add up a unit's keys through each other's shared memory
local function element_bytes(v)
  return v.cache == "e4m3" and 1 or 2
end

local function wide(v) -- rows of 512 bytes
  return v.head_dim == 256 and v.cache == "same"
end

local function direct_keys(v) -- of a tile: more warps with smaller tiles hide what 8-bit keys take to convert
  return (v.head_dim * element_bytes(v) >= 256 or v.cache == "e4m3" and v.head_dim >= 128) and 16 or 32
end

local function keys_of(v) -- of a tile
  if v.kernel == "direct" then return direct_keys(v) end
  return (v.head_dim * element_bytes(v) >= 256 or v.rows * v.head_dim >= 4096) and 16 or 32
end

local function wgmma_keys(v) -- of a block: three groups have fewer registers each; split keys come in blocks of 32 KB
  return (v.team == 3 or v.kernel == "split" and v.head_dim == 128) and 64 or 128
end

local function v_dim(v) -- columns of values and outputs
  return v.head_dim == 192 and 128 or v.head_dim
end

local function in_registers(v) -- queries: then their place is free for the next piece's, and there is room for a third stage
  return v.kernel == "wgmma" and v.team == 2 and v.head_dim <= 128
end

local function q_places(v) -- the next piece's queries have a place of their own where there is room
  return (v.head_dim == 192 or in_registers(v)) and 1 or 2
end

local function by_wgmma(v)
  return v.kernel == "wgmma" or v.kernel == "split"
end

local function wgmma_shared(v) -- as attn_paged_wgmma.cu.in has it: places of queries, the stages, what groups exchange, and what controls them
  local groups, exchange = v.kernel == "split" and 1 or v.team, v.kernel == "split" and 64 * v_dim(v) * 4 or 0
  return (q_places(v) * 64 * groups * v.head_dim + v.stages * wgmma_keys(v) * (v.head_dim + v_dim(v))) * 2 + exchange + 1024
end

local function mma_shared(v) -- as attn_paged_mma.cu.in has it: the stages, where keys lie, and what controls them
  return v.stages * 64 * (v.head_dim + v_dim(v)) * 2 + 4 * 64 * 8 + 384
end

local function shared(v) -- as shape.cuh has it
  if by_wgmma(v) then return wgmma_shared(v) end
  if v.kernel == "mma" then return mma_shared(v) end
  local pitch, keys = v.head_dim * element_bytes(v), keys_of(v)
  local teams, tiles = v.warps // v.team, v.head_dim // 16
  local owners = math.min(teams, tiles)
  local ring = teams * v.stages * 2 * keys * pitch
  local exchange = v.kernel == "direct" and 0 or v.team * owners * (teams - 1) * (tiles // owners) * 512
  local rows = v.rows * v.team
  local control = (3 * teams + 1) * rows * 4 + 16 + 4 + 32 + 44 + 12 + 4 * 56 + 48
  local between = v.blocks > 1 and rows * v.head_dim * 4 + v.blocks * rows * 16 + 16 or 0 -- blocks of a cluster
  return (ring + exchange + rows * v.head_dim * 2 + between + control + 127) // 128 * 128
end

local RESERVED = 1024 -- of a block, by the driver

local function blocks(v, arch) -- on an SM, by shared memory; of registers there are 65,536 for two blocks of four warps or one of eight
  local fits = arch.shared_per_sm // (shared(v) + RESERVED)
  return math.max(1, math.min(fits, (v.kernel == "direct" and 16 or 8) // v.warps))
end

local function direct_legal(v, arch)
  if arch.cc ~= 90 then return "elsewhere than on Hopper nothing was measured that asks for more than the stream kernel" end
  if v.head_dim == 192 then return "a warp's copies are whole rows of as many columns of keys as of values" end
  if v.team > 1 or v.rows > 16 then return "a warp has up to 16 rows and shares its keys with none" end
  local most = wide(v) and 4 or 8 -- warps whose ring fills an SM
  if v.warps > most or v.warps < most // 4 or v.warps < 2 then return "more warps have no room for their rings, fewer do not draw an SM's share" end
  if v.rows == 16 and (v.warps < most or v.stages < 3) then return "of 16 rows blocks fill an SM" end
  local third = v.warps ~= 4 or wide(v) or v.head_dim * element_bytes(v) * direct_keys(v) <= 2048
  if (v.stages == 3) ~= third then return "blocks of four warps have the stages with which most of their warps fit an SM" end
  if v.blocks > 1 and v.warps < most then return "clusters are for few units, whose blocks fill an SM" end
  if v.rows == 16 and v.blocks ~= 1 and v.blocks ~= 16 then return "of 16 rows the clusters between bring little" end
  return shared(v) <= arch.shared_per_block or "the rings and what blocks exchange take more shared memory than a block has"
end

local function is_mma(v) -- the one shape
  return v.rows == 16 and v.team == 4 and v.warps == 4 and v.stages == 2 and v.blocks == 1
end

return family {
  name = "attn_paged",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "cache", values = { "same", "e4m3" } },
    { name = "head_dim", values = { 64, 128, 192, 256 }, tag = "d" },
  },
  free = {
    { name = "kernel", values = { "stream", "wgmma", "split", "mma", "direct" } },
    { name = "rows", values = { 8, 16, 32, 64 }, tag = "r" },
    { name = "team", values = { 1, 2, 3, 4 }, tag = "t" },
    { name = "warps", values = { 2, 4, 8, 12, 16 }, tag = "w" },
    { name = "stages", values = { 2, 3, 5 }, tag = "st" },
    { name = "blocks", values = { 1, 2, 4, 8, 16 }, tag = "c", unspelled = 1 },
  },
  legal = function(v, arch)
    if v.stages == 5 and v.kernel ~= "split" then return "five stages are for split keys" end
    if v.kernel == "direct" then return direct_legal(v, arch) end
    if v.kernel == "mma" then
      if v.head_dim == 256 then return "two stages of 64 keys of 256 columns are more than most SMs have room for" end
      if v.cache == "e4m3" then return "products of two types" end
      if not is_mma(v) then return "four warps of 16 rows, two stages" end
      return true
    end
    if v.team == 4 then return "four warps that share keys, 16 rows each: mma" end
    if v.kernel == "split" then
      if not arch.wgmma then return "wgmma is Hopper's" end
      if v.cache == "e4m3" then return "wgmma takes operands of one type" end
      if v.head_dim > 128 then return "keys of 64 and 128 columns alone" end
      if v.blocks > 2 then return "clusters of four leave SMs idle" end
      if v.rows ~= 64 or v.team ~= 2 or v.warps ~= 12 or v.stages ~= 5 then return "two warpgroups of the same 64 rows, as many stages as there is room for" end
      return true
    end
    if v.head_dim == 192 and v.kernel == "stream" then return "a warp's copies are whole rows of as many columns of keys as of values" end
    if v.blocks > 1 and (v.blocks > 2 or v.kernel ~= "wgmma" or v.team ~= 2) then return "pairs are of blocks of two warpgroups" end
    if (v.kernel == "wgmma") ~= (v.rows == 64) or v.kernel == "wgmma" and v.warps ~= 4 * v.team + 4 then return "a warpgroup has 64 rows, and beside them there are four warps that load" end
    if v.kernel == "stream" and (v.warps > 8 or v.team == 3) then return "blocks of eight warps fill an SM" end
    if v.kernel == "wgmma" then
      if not arch.wgmma then return "wgmma is Hopper's" end
      if v.cache == "e4m3" then return "wgmma takes operands of one type" end
      if v.head_dim == 256 then return "outputs of 256 columns and scores of 128 keys take more registers than a thread has" end
      if v.team == 1 then return "two or three groups share keys" end
      if v.team == 3 and v.head_dim ~= 64 then return "of more than 64 columns three groups have no registers for the queries" end
      if v.head_dim == 192 and v.blocks == 1 then return "a CTA pair serves width 192" end
      if v.stages ~= (v.team == 2 and v.head_dim == 192 and 2 or 3) then return "as many stages as there is room for" end
    end
    if shared(v) > arch.shared_per_block then return "the ring and what the teams exchange take more shared memory than a block has" end
    if v.kernel == "wgmma" then return true end
    if v.team == 2 and v.rows ~= 32 then return "teams are for more rows than a warp holds" end
    if v.warps == 2 and not (wide(v) and v.rows == 8 and v.stages == 2) then return "two warps are for what holds no ring of four" end
    if v.rows == 32 and v.warps == 4 then return "of 32 rows a warp has no registers left for a second block" end
    if v.head_dim == 256 and v.rows == 32 then return "outputs of 32 rows and 256 columns take more registers than a thread has" end
    if v.head_dim == 256 and (v.warps == 8 or v.stages == 3) then return "keys of 256 columns fill the ring of four warps" end
    if arch.cc ~= 90 and (v.warps == 8 or wide(v) and v.warps == 4) then return "elsewhere than on Hopper nothing was measured that needs more than the smallest blocks" end
    -- What no problem of bench/shapes is fastest with on an H200, by a hundredth at least.
    if v.warps == 4 and v.stages == 3 then return "of four warps a second block brings more than a third stage" end
    if v.rows == 16 and v.warps == 8 and v.stages == 2 then return "three stages are never slower for 16 rows" end
    if v.rows == 32 and v.stages ~= (v.team == 2 and 3 or 2) then return "other stages are never faster for 32 rows" end
    return true
  end,
  serves = function(v, arch)
    if v.cache == "e4m3" and arch.cc < 89 then return "an e4m3 cache is offered where an instruction converts it" end
    if v.cache == "e4m3" and v.head_dim == 192 then return "keys of 192 columns are offered in the queries' type" end
    return true
  end,
  facts = { "rows", "keys", "stages", "teams", "dependent", "wgmma", "direct" },
  coords = { "kv_rows", "units", "rows" },
  plan = function(v, arch)
    return {
      threads = 32 * v.warps,
      shared = shared(v),
      cluster = v.blocks,
      max_registers = by_wgmma(v) and 65536 // (32 * v.warps) // 8 * 8 or math.min( -- wgmma: before the groups trade them
        255, 65536 // (32 * v.warps * blocks(v, arch)) // 8 * 8),
      facts = {
        rows = v.kernel == "split" and v.rows or v.rows * v.team * (v.kernel == "wgmma" and v.blocks or 1),
        keys = by_wgmma(v) and wgmma_keys(v) or v.kernel == "mma" and 64 or keys_of(v),
        stages = v.stages,
        teams = v.kernel == "split" and v.team * v.blocks or v.kernel == "wgmma" and 1 or v.warps // v.team,
        dependent = arch.cc >= 90 and 1 or 0, -- the templates wait there
        wgmma = by_wgmma(v) and (v.kernel == "wgmma" and v.blocks or 1) or 0, -- CTAs that share a block of keys
        direct = v.kernel == "direct" and 1 or 0,
      },
    }
  end,
  template = function(v) return "attn_paged_" .. (by_wgmma(v) and "wgmma" or v.kernel) .. ".cu.in" end,
  constants = function(v, arch)
    if by_wgmma(v) then
      -- 64,512 registers in all, or 65,536: of the groups, and of 128 threads that load.
      local many = v.kernel == "wgmma" and v.team == 2
      return { KEYS = wgmma_keys(v), REGISTERS = many and 232 or v.team == 3 and 152 or 224, PRODUCER_REGISTERS = many and 40 or 56, Q_PLACES = q_places(v),
        QUERIES = in_registers(v) and "regs" or "shared", LOADERS = v.kernel == "wgmma" and v.head_dim >= 128 and 2 or 1 }
    end
    if v.kernel == "mma" then return { KEYS = 64 } end
    return { BOUNDS = 32 * v.warps .. ", " .. blocks(v, arch), KEYS = keys_of(v) }
  end,
  -- What fits everywhere: 99 KiB.
  fallback = function(v) return v.head_dim == 192 and v.kernel == "mma" or v.kernel == "stream" and v.rows == (v.head_dim == 256 and 8 or 16) and v.team == 1 and v.warps == (wide(v) and 2 or 4) and v.stages == 2 end,
}
