-- A decode step in one launch: what variants exist, and why not others. kda_step has a gate for each channel of K, gdn_step one
-- for all of them; the kernels are the same but for where they read it.
--
-- A cluster of `blocks` blocks has one (row, query head): it convolves q and k (each block all of them), and takes the group's value
-- heads one after the other, a slice of V a block. A block of the whole state needs no cluster. Types, widths of the
-- convolution, gates and layouts of windows are run-time data: they touch a few elements of each block.
--
--   group    value heads of a query head: one, or several, which come one after the other
--   state    bits of an element in the pool
--   floats   of the state a thread holds
--   lanes    along a row of the state (all K of one v)
--   warps    per block
--   blocks   of a cluster
--   cache    def: default caching; stream: the state is marked as used once, the first to be evicted from L1 and L2
--   next     when the next kernel may be placed: late: when a block has issued its stores; early: before it loads, where
--            few states leave room for both

-- Floats a thread, lanes, warps, blocks: cache and next. What the space leaves out lost on an H200 everywhere
-- (docs/perf/kda_step.md): smaller slices convolve q and k too often, and larger blocks than 512 threads do not exist.
local shapes = {
  ["32 16 16 1"] = "stream-late def-late",
  ["64 16 8 1"] = "stream-late def-late stream-loop def-loop",
  ["64 8 8 1"] = "stream-late stream-loop",
  ["32 16 8 2"] = "stream-late",
  ["16 16 8 4"] = "stream-early stream-late",
  ["16 32 8 4"] = "stream-early",
}

local function derived(v)
  local d = {}
  d.threads = 32 * v.warps
  d.extent = d.threads * v.floats // 128              -- rows of a block's slice
  d.quads = 128 // 4 // v.lanes                       -- of four elements, a lane's part of a row
  d.vectors = d.quads // (32 // v.state)              -- of 16 bytes
  d.loads = v.floats // 4 // math.max(1, d.quads)     -- rows a lane has a part of
  return d
end

-- Threads that an SM shall hold: as many as registers allow without spills.
local function resident_threads(v, arch)
  if v.group == "many" then return 384 end
  if v.floats == 64 then return v.state == 16 and arch.cc == 90 and 768 or 512 end
  if v.floats == 32 and v.state == 32 and v.blocks > 1 then return 896 end
  return 1024
end

-- `name` is the family's; `scalar`: a gate is one number a row and head; `refuse`, which may be nil, says of a shape why
-- the family does without it.
return function(name, scalar, refuse) return {
  name = name,
  required = {
    { name = "layout", values = { "vk" } },
    { name = "state", values = { 32, 16 }, tag = "s" },
    { name = "group", values = { "one", "many" } },
  },
  free = {
    { name = "floats", values = { 16, 32, 64 }, tag = "f" },
    { name = "lanes", values = { 8, 16, 32 }, tag = "l" },
    { name = "warps", values = { 8, 16 }, tag = "w" },
    { name = "blocks", values = { 1, 2, 4 }, tag = "c" },
    { name = "cache", values = { "def", "stream" } },
    { name = "next", values = { "late", "early", "loop" } },
  },
  legal = function(v, arch)
    local d = derived(v)
    if d.extent * v.blocks ~= 128 then return "a cluster has a state, no more and no less" end
    if v.blocks > 1 and not arch.cluster then return "blocks that share a head need clusters, sm_90 or later" end
    if v.next == "early" and arch.cc < 90 then return "launches depend on each other from sm_90 on" end
    if v.next == "loop" and (v.group ~= "one" or v.blocks > 1) then return "blocks that stay take heads of their own" end
    if d.vectors < 1 then return "more lanes than a row has vectors of 16 bytes" end
    if d.loads < 1 then return "a lane holds no whole part of a row" end
    if 2 * d.loads > v.lanes then return "the sums of more rows than a reduction spreads over the lanes" end
    if v.blocks > v.lanes // 2 then return "a lane a block gives its sum to" end
    local shape = string.format("%d %d %d %d", v.floats, v.lanes, v.warps, v.blocks)
    if not shapes[shape] or not shapes[shape]:find(v.cache .. "-" .. v.next, 1, true) then
      return "lost on an H200 everywhere, or a neighbour of what did"
    end
    if refuse and refuse(shape, v) then return refuse(shape, v) end
    return true
  end,
  facts = { "blocks", "thread_bytes", "streaming", "dependent", "early", "loop" },
  coords = { "states" },
  plan = function(v, arch)
    local d = derived(v)
    return {
      threads = d.threads,
      shared = 0,
      cluster = v.blocks,
      max_registers = math.min(255, 65536 // d.threads),
      facts = {
        blocks = v.blocks,
        thread_bytes = v.floats * v.state // 8,
        streaming = v.cache == "stream" and 1 or 0,
        dependent = arch.cc >= 90 and 1 or 0, -- the template waits there
        early = v.next == "early" and 1 or 0,
        loop = v.next == "loop" and 1 or 0,
      },
    }
  end,
  template = function(v) return "kda_step/kda_step_vk.cu.in" end,
  constants = function(v, arch)
    return {
      SCALAR_GATE = scalar and "true" or "false",
      STREAM = v.cache == "stream" and "true" or "false",
      RESIDENT = math.max(1, resident_threads(v, arch) // (32 * v.warps)), -- blocks that an SM shall hold
    }
  end,
  -- One block a head runs everywhere.
  fallback = function(v)
    return v.floats == 64 and v.lanes == 16 and v.warps == 8 and v.blocks == 1 and v.cache == "stream" and v.next == "late"
  end,
} end
