-- Decode by the delta rule: what variants exist, and why not others. kda_decode has a gate for each channel of K, gdn_decode
-- one for all of them; the kernels are the same but for where they read it.
--
-- The state of one (row, value head) is a head_dim x head_dim fp32 matrix that is read once and written once (or once a
-- token, where each token's state is wanted): a pure stream. A block holds a slice of it in registers from the first token
-- to the last; slices are of V, since columns of V do not depend on each other. Types, gate, normalisation and slots are
-- run-time data: they touch a few elements of each block.
--
--   tokens    one: problems of one token a row; many: of 2 to 8
--   floats    of the state a thread holds
--   lanes     along a row of the state (all K of one v in layout vk, a run of V of one k in kv)
--   warps     per block
--   cache     def: default caching; stream: the state is marked as used once, the first to be evicted from L1 and L2;
--             ahead: default caching, and blocks have L2 read states that later blocks will want (ahead.cuh)
--
-- Floats a thread, lanes, warps. What the space leaves out lost on an H200 nearly everywhere (docs/perf/kda_decode.md), or
-- is a neighbour that arithmetic puts with it: larger blocks spread the addresses in flight, smaller ones pay for their
-- inputs, and in kv rows cut to less than 256 bytes cost bandwidth where there are many states.
local shapes = {
  vk = {
    [64] = { "8 16 8", "16 8 4", "16 16 2", "16 16 4", "16 16 8", "32 16 2", "32 16 4" },
    [128] = { "8 32 8", "16 16 4", "16 16 8", "16 32 4", "16 32 8", "32 16 4", "32 16 8" },
  },
  kv = {
    [64] = { "16 4 4", "16 8 4", "16 16 8", "32 8 4", "32 16 4" },
    [128] = { "16 4 4", "16 4 8", "16 8 8", "32 8 4", "32 8 8", "32 16 8", "64 16 4" },
  },
}

-- Those that have L2 read ahead, as the shapes that came first without from 512 states on. Distances were measured on an
-- H200, in states of head_dim 128: 8.25 MiB ahead, half of what resident blocks hold, and half as much before the start.
local ahead_shapes = {
  [64] = { ["32 16 4"] = true },
  [128] = { ["32 16 8"] = true, ["64 16 4"] = true },
}
local ahead_states, first_states = 132, 66

local function derived(v)
  local d = {}
  d.threads = 32 * v.warps
  d.slice = d.threads * v.floats                      -- floats of a block's slice
  d.blocks = v.head_dim * v.head_dim // d.slice       -- per state
  d.extent = v.head_dim // math.max(1, d.blocks)      -- of V
  d.max_tokens = v.tokens == "many" and 8 or 1
  if v.layout == "vk" then
    d.vectors = v.head_dim // 4 // v.lanes            -- 16-byte vectors a lane holds of a row
    d.loads = v.floats // 4 // math.max(1, d.vectors) -- rows a lane has a part of
    d.ksplit = 1
  else
    d.vectors = 1
    d.loads = v.floats // 4
    d.ksplit = v.lanes * v.head_dim // (8 * v.floats) -- warps that share columns by splitting K
  end
  -- A token's inputs and outputs in shared memory: q, k, decay, v and o of the slice; in kv a quad with a gap, and v.
  d.token_bytes = 4 * (v.layout == "vk" and 3 * v.head_dim + 2 * d.extent or 4 * v.head_dim + d.extent)
  return d
end

-- `name` is the family's; `scalar`: a gate is one number a head and token; `refuse`, which may be nil, says of a shape
-- ("floats lanes warps") and cache of a key why the family does without it.
return function(name, scalar, refuse) return {
  name = name,
  required = {
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
    { name = "layout", values = { "vk", "kv" } },
    { name = "tokens", values = { "one", "many" } },
  },
  free = {
    { name = "floats", values = { 8, 16, 32, 64 }, tag = "f" },
    { name = "lanes", values = { 4, 8, 16, 32 }, tag = "l" },
    { name = "warps", values = { 2, 4, 8 }, tag = "w" },
    { name = "cache", values = { "def", "stream", "ahead" } },
  },
  legal = function(v, arch)
    local d = derived(v)
    if d.blocks < 1 then return "a block holds more than a state" end
    if d.extent < 8 then return "less than 16 bytes of v and o to a block" end
    if d.blocks > 16 then return "a slice has to be worth its block: 16 blocks a state at most" end
    if d.threads % v.head_dim ~= 0 then return "a thread's channel is the same for all tokens" end
    if v.layout == "vk" then
      if d.vectors < 1 then return "more lanes than a row has vectors" end
      if d.loads < 1 then return "a lane holds no whole part of a row" end
      if 2 * d.loads > v.lanes then return "the sums of more rows than a reduction spreads over the lanes" end
    else
      if d.ksplit < 1 then return "a warp holds more rows than there are" end
      if d.ksplit > v.warps then return "more warps share columns than a block has" end
      if d.extent > v.head_dim then return "a block holds more columns than there are" end
    end
    local mine = string.format("%d %d %d", v.floats, v.lanes, v.warps)
    if v.cache == "ahead" then
      if v.layout == "vk" then return "blocks of layout vk read contiguous slices already" end
      if not arch.bulk_copy then return "bulk prefetches, which read ahead, need sm_90 or later" end
      if not ahead_shapes[v.head_dim][mine] then return "reading ahead is for the shapes that serve many states" end
    end
    for _, shape in ipairs(shapes[v.layout][v.head_dim]) do
      if shape == mine then return refuse and refuse(v, mine) or true end
    end
    return "a shape that lost on an H200 nearly everywhere, or a neighbour of one"
  end,
  facts = { "blocks", "token_bytes", "thread_bytes", "streaming", "dependent" },
  coords = { "states", "num_tokens" },
  plan = function(v, arch)
    local d = derived(v)
    return {
      threads = d.threads,
      shared = d.max_tokens * d.token_bytes,
      cluster = 1,
      max_registers = math.min(255, 65536 // d.threads),
      facts = {
        blocks = d.blocks,
        token_bytes = d.token_bytes,
        thread_bytes = 4 * v.floats,
        streaming = v.cache == "stream" and 1 or 0,
        dependent = arch.cc >= 90 and 1 or 0, -- the templates wait there
      },
    }
  end,
  template = function(v) return "kda_decode/kda_decode_" .. v.layout .. ".cu.in" end,
  constants = function(v, arch)
    local d = derived(v)
    return {
      MAX_TOKENS = d.max_tokens,
      SCALAR_GATE = scalar and "true" or "false",
      KSPLIT = d.ksplit,
      TOKEN_BYTES = d.token_bytes,
      STREAM = v.cache == "stream" and "true" or "false",
      AHEAD_STATES = ahead_states * (128 * 128) // (v.head_dim * v.head_dim),
      FIRST_STATES = first_states * (128 * 128) // (v.head_dim * v.head_dim),
    }
  end,
  -- Blocks small enough to fill any GPU with few states.
  fallback = function(v)
    local kv_floats = v.head_dim == 128 and 32 or 16
    return v.warps == 4 and v.cache == "stream" and v.floats == (v.layout == "vk" and 16 or kv_floats)
      and v.lanes == (v.layout == "vk" and 16 or 8)
  end,
} end
