-- Lightning Attention single-token decode: what variants exist, and why not others.
--
-- The state of one (row, value head) is a head_dim x head_dim matrix that is read and written once: a pure stream.
-- Every free axis is a way of keeping enough of that stream in flight.
--
--   state_pool  none: fp32 states in a packed pool; pool: in pools as engines keep them (slot stride, null slot, other slots
--             to write to); pool16: in such pools, states of 16 bits, which type is known at run time. With pools a
--             block has its whole slice in registers at once, so tile * stages is what it handles in all
--   load      ld       16-byte loads to registers, the next tile prefetched where stages = 2
--             cpasync  16-byte cp.async into a ring of shared memory that each warp owns
--             bulk     bulk copies (the TMA engine) into the same ring, completing on an mbarrier
--   store     st       16-byte stores from registers
--             bulk     the tile is updated in shared memory and a bulk copy takes it back
--   tile      rows of the state one block handles per pipeline step (rows run along V in layout vk, along K in kv)
--   warps     per block
--   stages    tiles in flight per warp
--   blocks    blocks per state, each owning a slice of V
--   ksplit    warp groups that share a slice by splitting K and add their outputs in shared memory (layout kv always
--             splits K over the block's warps, so the axis is 1 there)
--   cache     def: default caching; stream: marked as used once, the first to be evicted from L1 and L2; ahead (pools):
--             default caching, and blocks have L2 read states that later blocks will want (pool.cuh)
--   grid      one: a block per slice; pers: as many blocks as fit at once, each taking slices in turn
local function state_bits(v) return v.state_pool == "pool16" and 16 or 32 end

local function derived(v)
  local d = {}
  d.threads = 32 * v.warps
  local row = v.layout == "vk" and v.head_dim // v.ksplit or v.head_dim // v.blocks -- elements one warp reads of a row
  row = row * state_bits(v) // 32                -- and floats that they take in memory
  d.vectors = math.max(1, row // 128)            -- 16-byte vectors a lane holds of a row
  d.lanes = row // 4 // d.vectors                -- lanes along a row
  d.rows_per_load = 32 // d.lanes                -- rows one warp-wide load covers
  d.rows = v.tile * v.ksplit // v.warps          -- rows a warp handles per step
  d.extent = v.layout == "vk" and v.head_dim // v.blocks or v.head_dim -- rows one block handles in all
  d.steps = d.extent // v.tile
  d.row_bytes = row * 4
  d.stage_bytes = d.rows * d.row_bytes           -- of one warp
  d.registers = d.rows // math.max(1, d.rows_per_load) * d.vectors * 4 -- a tile in registers, per thread
  return d
end

local function shared(v, d)
  local bytes = 0
  if v.load ~= "ld" then bytes = v.warps * v.stages * d.stage_bytes end
  return bytes
end

-- What the space leaves out to stay small: shapes that lost on an H200 nearly everywhere (docs/perf/la_decode.md has the
-- margins), and neighbours that arithmetic puts with them.
local function ill_sized(v, d, arch)
  local bytes = d.stage_bytes
  if v.load == "ld" then
    if v.stages > 2 then return "a third tile in registers costs more occupancy than it hides" end
    if bytes < 1024 or bytes > 4096 then return "a warp's tile in registers is 1 to 4 KiB" end
    if v.ksplit > 1 and (bytes ~= 2048 or d.steps > 1 or v.cache == "def") then return "ksplit helps a short block at most" end
    if d.steps > 2 * v.stages then return "more than two steps a stage: more blocks do the same with less waiting" end
    if v.cache == "def" and (v.blocks > 8 or bytes > 2048) then
      return "without streaming hints only small tiles of few blocks keep up: the batches it is for overflow L2"
    end
    return nil
  end
  if bytes ~= (v.warps == 4 and 4096 or 2048) then return "a ring's tile is 4 KiB with 4 warps, 2 KiB with 8" end
  if v.ksplit > 1 then return "a ring leaves ksplit nothing to hide" end
  if d.steps > 4 then return "more than four steps: more blocks do the same with less waiting" end
  if v.load == "cpasync" then
    if v.stages == 1 then return "cp.async with one stage is a slow plain load" end
    if arch.bulk_copy and (v.stages > 2 or v.cache == "def") then
      return "where bulk copies fill rings, cp.async stays for few states: two stages, streaming"
    end
    return nil
  end
  if v.grid == "pers" then
    if v.stages < 2 or v.cache == "stream" or v.store == "st" or v.warps > 4 then
      return "a persistent block runs from a ring of at least two stages, with bulk loads and bulk stores"
    end
    return nil
  end
  if v.stages > 2 then return "a third stage is for persistent blocks" end
  if v.warps == 8 and v.cache == "stream" then return "8 warps with bulk loads are for batches that overflow L2" end
  if v.store == "bulk" and v.cache == "stream" then return "a bulk store leaves eviction to the cache" end
  if v.store == "bulk" and v.warps == 8 then return "bulk stores of 2 KiB never came first" end
  return nil
end

-- With pools: tile, warps, stages, blocks, and caches. Those of fp32 are shapes that tables of packed pools pick, those of 16
-- bits have as many bytes a thread; reading ahead is for those that serve many states, as kda_decode's do.
local pool_shapes = {
  pool = {
    vk = {
      [64] = { ["16 4 1 4"] = "stream", ["32 4 1 2"] = "stream def", ["64 4 1 1"] = "stream ahead" },
      [128] = { ["16 4 1 8"] = "stream ahead", ["32 4 1 4"] = "stream def ahead", ["32 8 1 4"] = "stream ahead", ["64 8 1 2"] = "ahead" },
      [256] = { ["16 4 1 16"] = "stream def ahead", ["16 8 1 16"] = "stream ahead", ["32 16 1 8"] = "stream" },
    },
    kv = {
      [64] = { ["64 4 1 4"] = "stream", ["64 4 1 2"] = "stream def", ["64 4 1 1"] = "stream ahead", ["64 8 1 1"] = "ahead" },
      [128] = { ["128 4 1 4"] = "stream", ["128 4 1 8"] = "stream", ["128 8 1 4"] = "stream", ["128 16 1 2"] = "stream ahead", ["128 8 1 2"] = "def ahead", ["128 4 1 2"] = "ahead" },
      [256] = { ["128 4 2 8"] = "stream", ["128 8 2 8"] = "stream", ["128 16 2 4"] = "stream ahead", ["128 8 2 4"] = "def ahead" },
    },
  },
  pool16 = {
    vk = {
      [64] = { ["16 4 1 4"] = "stream", ["32 4 1 2"] = "stream", ["64 4 1 1"] = "stream def ahead", ["64 8 1 1"] = "ahead" },
      [128] = { ["32 4 1 4"] = "stream def ahead", ["32 8 1 4"] = "stream ahead", ["64 4 1 2"] = "ahead", ["64 8 1 2"] = "def ahead", ["128 8 1 1"] = "ahead" },
      [256] = { ["16 4 1 16"] = "stream ahead", ["16 8 1 16"] = "stream", ["32 8 1 8"] = "def ahead", ["32 4 1 8"] = "ahead" },
    },
    kv = {
      [64] = { ["64 4 1 2"] = "stream", ["64 4 1 1"] = "stream def ahead", ["64 8 1 1"] = "ahead" },
      [128] = { ["128 4 1 4"] = "stream", ["128 8 1 4"] = "stream", ["128 8 1 2"] = "def ahead", ["128 4 1 2"] = "ahead", ["128 8 1 1"] = "ahead", ["128 16 1 1"] = "ahead" },
      [256] = { ["128 4 2 8"] = "stream", ["128 8 2 8"] = "stream", ["128 8 2 4"] = "def ahead", ["128 16 2 4"] = "ahead" },
    },
  },
}
-- How far ahead, as kda_decode has it: in fp32 states of head_dim 128, 8.25 MiB, and half as much before the start.
local ahead_states, first_states = 132, 66

local function ill_pooled(v, arch)
  if v.load ~= "ld" or v.store ~= "st" or v.ksplit > 1 or v.grid == "pers" then return "with pools a slice goes through registers, once" end
  local caches = pool_shapes[v.state_pool][v.layout][v.head_dim][string.format("%d %d %d %d", v.tile, v.warps, v.stages, v.blocks)]
  if not caches or not caches:find(v.cache, 1, true) then return "a shape or a cache that serves no packed pool well, or a neighbour of one" end
  if v.cache == "ahead" and not arch.bulk_copy then return "bulk prefetches, which read ahead, need sm_90 or later" end
  return true
end

local pool_fallbacks = {
  pool = { vk = { [64] = "16 4 1 4", [128] = "32 4 1 4", [256] = "16 4 1 16" }, kv = { [64] = "64 4 1 4", [128] = "128 4 1 4", [256] = "128 4 2 8" } },
  pool16 = { vk = { [64] = "32 4 1 2", [128] = "32 4 1 4", [256] = "16 4 1 16" }, kv = { [64] = "64 4 1 2", [128] = "128 4 1 4", [256] = "128 4 2 8" } },
}
local fallback_shapes = {
  vk = { [64] = { tile = 16, blocks = 4 }, [128] = { tile = 32, blocks = 4 }, [256] = { tile = 16, blocks = 16 } },
  kv = { [64] = { tile = 64, blocks = 4 }, [128] = { tile = 64, blocks = 4 }, [256] = { tile = 128, blocks = 8 } },
}

return family {
  name = "la_decode",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128, 256 }, tag = "d" },
    { name = "layout", values = { "vk", "kv" } },
    { name = "state_pool", values = { "none", "pool", "pool16" }, unspelled = "none" },
  },
  free = {
    { name = "load", values = { "ld", "cpasync", "bulk" } },
    { name = "store", values = { "st", "bulk" }, tag = "to" },
    { name = "tile", values = { 8, 16, 32, 64, 128 }, tag = "t" },
    { name = "warps", values = { 4, 8, 16 }, tag = "w" },
    { name = "stages", values = { 1, 2, 3 }, tag = "s" },
    { name = "blocks", values = { 1, 2, 4, 8, 16 }, tag = "b" },
    { name = "ksplit", values = { 1, 2 }, tag = "k" },
    { name = "cache", values = { "def", "stream", "ahead" } },
    { name = "grid", values = { "one", "pers" } },
  },
  legal = function(v, arch)
    if v.state_pool ~= "none" then return ill_pooled(v, arch) end
    if v.cache == "ahead" then return "reading ahead is for pools" end
    local d = derived(v)
    if v.load ~= "ld" and v.warps == 16 then return "16 warps with a ring each: 4 and 8 warps fill an SM with more, smaller blocks" end
    if v.load == "bulk" and not arch.bulk_copy then return "bulk copies need sm_90 or later" end
    if v.store == "bulk" and v.load ~= "bulk" then return "a bulk store starts from the ring that bulk loads fill" end
    if v.ksplit > 1 and v.layout == "kv" then return "layout kv splits K over all warps of the block already" end
    if v.grid == "pers" and v.load ~= "bulk" then return "a persistent block pays only with a ring that bulk copies fill" end
    if d.row_bytes < 64 then return "a warp's part of a row is less than two sectors" end
    if d.rows < d.rows_per_load then return "a warp's share of the tile is less than one warp-wide load" end
    if d.steps < 1 then return "the tile is larger than the block's slice" end
    if d.steps < v.stages then return "more stages than the block has tiles" end
    local problem = ill_sized(v, d, arch)
    if problem then return problem end
    if shared(v, d) > arch.shared_per_block then
      return string.format("needs %d bytes of shared memory, %s allows %d", shared(v, d), arch.name, arch.shared_per_block)
    end
    return true
  end,
  facts = { "blocks", "persistent", "inflight_bytes", "warp_bytes", "streaming", "dependent" },
  coords = { "states" },
  plan = function(v, arch)
    local d = derived(v)
    return {
      threads = d.threads,
      shared = shared(v, d),
      cluster = 1,
      max_registers = math.min(255, 65536 // d.threads),
      facts = {
        blocks = v.blocks,
        persistent = v.grid == "pers" and 1 or 0,
        inflight_bytes = v.warps * v.stages * d.stage_bytes,
        warp_bytes = d.stage_bytes,
        streaming = v.cache == "stream" and 1 or 0,
        dependent = arch.cc >= 90 and 1 or 0, -- the templates wait there
      },
    }
  end,
  template = function(v) return "la_decode_" .. (v.state_pool ~= "none" and "pool_" or "") .. v.layout .. ".cu.in" end,
  constants = function(v, arch)
    local d = derived(v)
    return {
      ROWS = d.rows,
      STEPS = d.steps,
      STREAM = v.cache == "stream" and "true" or "false",
      LANES = d.lanes,
      VECTORS = d.vectors,
      STATE_BITS = state_bits(v),
      FP16 = state_bits(v) == 16 and "p.state_fp16" or "false",
      AHEAD_STATES = ahead_states * (128 * 128 * 32) // (v.head_dim * v.head_dim * state_bits(v)),
      FIRST_STATES = first_states * (128 * 128 * 32) // (v.head_dim * v.head_dim * state_bits(v)),
      -- With large tiles in registers ptxas otherwise spills a few of them for the sake of occupancy.
      BOUNDS = v.load == "ld" and d.registers * v.stages >= 64 and d.threads .. ", 1" or tostring(d.threads),
    }
  end,
  -- Plain loads and blocks small enough to fill any GPU with few states.
  fallback = function(v)
    if v.state_pool ~= "none" then
      return v.cache == "stream" and string.format("%d %d %d %d", v.tile, v.warps, v.stages, v.blocks) == pool_fallbacks[v.state_pool][v.layout][v.head_dim]
    end
    local shape = fallback_shapes[v.layout][v.head_dim]
    return v.load == "ld" and v.store == "st" and v.warps == 4 and v.stages == 1 and v.ksplit == 1 and v.cache == "stream"
      and v.grid == "one" and v.tile == shape.tile and v.blocks == shape.blocks
  end,
}
