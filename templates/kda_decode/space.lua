-- Decode by the delta rule: what variants exist, and why not others. kda_decode has a gate for each channel of K, gdn_decode
-- one for all of them; the kernels are the same but for where they read it.
--
-- The state of one (row, value head) is a head_dim x head_dim matrix, of fp32 or 16 bits, that is read once and written once
-- (or once a token, where each token's state is wanted): a pure stream. A block holds a slice of it in registers from the first token
-- to the last; slices are of V, since columns of V do not depend on each other. Types, gate, normalisation and slots are
-- run-time data: they touch a few elements of each block.
--
--   tokens    one: problems of one token a row, fp32 states in a packed pool; many: of 2 to 8; onepool, manypool: of 2 to 16, in
--             pools as engines keep them (slot stride, null slot, other slots to write to); one16, many16: in such pools,
--             states of 16 bits; replay, replay16: of one token, states written once in several steps; verify, verify16:
--             of 2 to 16, whose records go to the ring (verify.cuh)
--   floats    of the state a thread holds
--   lanes     along a row of the state (all K of one v in layout vk, a run of V of one k in kv), 16 bytes each at a time
--   warps     per block
--   cache     def: default caching; stream: the state is marked as used once, the first to be evicted from L1 and L2;
--             ahead: default caching, and blocks have L2 read states that later blocks will want (ahead.cuh);
--             late (replay): a block has L2 read its slice first and loads it a few rows at a time once records are replayed
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

-- Of 16 bits: a row has half the bytes, so half as many lanes, and a thread of as many bytes has twice the floats.
local half_shapes = {
  vk = {
    [64] = { "16 8 2", "16 8 4", "16 8 8", "32 8 2", "32 8 4" },
    [128] = { "16 16 4", "16 16 8", "32 8 4", "32 8 8", "32 16 4", "32 16 8", "64 8 4", "64 8 8", "64 16 4", "64 16 8" },
  },
  kv = {
    [64] = { "16 4 4", "16 8 8", "32 4 4", "32 8 4" },
    [128] = { "16 4 8", "32 4 4", "32 4 8", "32 8 8", "64 8 4", "64 16 8" },
  },
}

-- Those that have L2 read ahead, as the shapes that came first without from 512 states on. Distances were measured on an
-- H200, in states of head_dim 128 and fp32: 8.25 MiB ahead, half of what resident blocks hold, and half as much before the
-- start.
local ahead_shapes = {
  vk = { [64] = {}, [128] = { ["16 16 4"] = true, ["32 16 4"] = true, ["32 16 8"] = true } },
  kv = { [64] = { ["32 16 4"] = true }, [128] = { ["32 16 8"] = true, ["64 16 4"] = true } },
}
local half_ahead_shapes = {
  vk = { [64] = { ["32 8 4"] = true }, [128] = { ["32 8 4"] = true, ["32 8 8"] = true, ["32 16 4"] = true, ["32 16 8"] = true, ["64 8 4"] = true, ["64 8 8"] = true, ["64 16 4"] = true, ["64 16 8"] = true } },
  kv = { [64] = { ["32 8 4"] = true }, [128] = { ["64 8 4"] = true, ["64 16 8"] = true } },
}
local ahead_states, first_states = 132, 66

-- Replay: a block computes the coefficients of all records, so large slices share that work, in few warps.
local replay_shapes = {
  vk = { [64] = { "16 16 4", "32 16 4" }, [128] = { "64 16 4", "64 16 8", "128 16 4" } },
}
local half_replay_shapes = {
  vk = { [64] = { "32 4 4", "32 8 4" }, [128] = { "128 4 4", "64 16 4", "64 16 8", "128 16 4" } },
}
local verify_shapes = { [64] = { "32 16 4" }, [128] = { "32 16 4", "32 16 8", "64 16 4", "64 16 8" } }
local half_verify_shapes = { [64] = { "32 8 4" }, [128] = { "64 16 4", "64 16 8", "128 16 4" } }
local most_records = 32

local function state_bits(v) return v.tokens:sub(-2) == "16" and 16 or 32 end
local function is_verify(v) return v.tokens:sub(1, 6) == "verify" end
local function is_many(v) return v.tokens:sub(1, 4) == "many" or is_verify(v) end
local function is_pool(v) return v.tokens ~= "one" and v.tokens ~= "many" end
local function is_replay(v) return v.tokens:sub(1, 6) == "replay" end

local function shapes_of(v)
  local half = state_bits(v) == 16
  if is_verify(v) then return (half and half_verify_shapes or verify_shapes)[v.head_dim] end
  if is_replay(v) then return (half and half_replay_shapes or replay_shapes)[v.layout][v.head_dim] end
  return (half and half_shapes or shapes)[v.layout][v.head_dim]
end

local function derived(v)
  local d = {}
  d.threads = 32 * v.warps
  d.slice = d.threads * v.floats                     -- floats of a block's slice
  d.blocks = v.head_dim * v.head_dim // d.slice       -- per state
  d.extent = v.head_dim // math.max(1, d.blocks)      -- of V
  d.max_tokens = is_many(v) and (is_pool(v) and 16 or 8) or 1
  d.bits = state_bits(v)
  d.width = 128 // d.bits                             -- elements of a 16-byte vector
  if v.layout == "vk" then
    d.vectors = v.head_dim // d.width // v.lanes            -- 16-byte vectors a lane holds of a row
    d.loads = v.floats // d.width // math.max(1, d.vectors) -- rows a lane has a part of
    d.ksplit = 1
  else
    d.vectors = 1
    d.loads = v.floats // d.width
    d.ksplit = v.lanes * v.head_dim * d.width // (32 * v.floats) -- warps that share columns by splitting K
  end
  -- A token's inputs and outputs in shared memory: q, k, decay, v and o of the slice; in kv a quad with a gap, and v.
  d.token_bytes = 4 * (v.layout == "vk" and 3 * v.head_dim + 2 * d.extent or 4 * v.head_dim + d.extent)
  d.ring_bytes = 0
  if is_replay(v) then -- replay.cuh: decays and coefficients behind the token, then the records
    d.by_mma = d.bits == 16 and v.lanes == 4
    local columns = d.by_mma and 8 * (v.head_dim + 8) * 2 or 0
    d.token_bytes = d.token_bytes + 4 * ((3 + v.warps) * v.head_dim + 2 * most_records + d.extent) + columns
    d.ring_bytes = most_records * (v.head_dim * (4 + 2 + 4) + d.extent * 4)
  end
  d.replay_bytes = 0
  if is_verify(v) then -- what is computed of the records, then the records
    d.replay_bytes = 4 * ((3 + v.warps) * v.head_dim + 2 * most_records + d.extent)
    d.ring_bytes = most_records * (v.head_dim * (4 + 2 + 4) + d.extent * 4)
  end
  return d
end

-- `name` is the family's; `scalar`: a gate is one number a head and token; `refuse`, which may be nil, says of a shape
-- ("floats lanes warps") and cache of a key and a target why the family does without it.
-- Keys of which CUDA 13.0 gives kernels local memory, for a tenth block of an SM, unless it is told that one is enough; and
-- targets; of scalar gates and of a gate a channel.
local crowded = {
  [true] = { ["128 kv many16"] = "sm_100a sm_103a", ["128 vk onepool"] = "sm_86 sm_89" },
  [false] = { ["128 vk many16"] = "sm_80 sm_86 sm_89 compute_80", ["128 vk onepool"] = "sm_86 sm_89" },
}

return function(name, scalar, refuse) return {
  name = name,
  required = {
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
    { name = "layout", values = { "vk", "kv" } },
    { name = "tokens", values = scalar and { "one", "many", "onepool", "manypool", "one16", "many16", "replay", "replay16" } or
      { "one", "many", "onepool", "manypool", "one16", "many16", "replay", "replay16", "verify", "verify16" } },
  },
  free = {
    { name = "floats", values = { 8, 16, 32, 64, 128 }, tag = "f" },
    { name = "lanes", values = { 4, 8, 16, 32 }, tag = "l" },
    { name = "warps", values = { 2, 4, 8 }, tag = "w" },
    { name = "cache", values = { "def", "stream", "ahead", "late" } },
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
      if 2 * d.loads > v.lanes and not is_replay(v) and not is_verify(v) then return "the sums of more rows than a reduction spreads over the lanes" end
    else
      if d.ksplit < 1 then return "a warp holds more rows than there are" end
      if d.ksplit > v.warps then return "more warps share columns than a block has" end
      if d.extent > v.head_dim then return "a block holds more columns than there are" end
    end
    local mine = string.format("%d %d %d", v.floats, v.lanes, v.warps)
    local half = d.bits == 16
    if (is_replay(v) or is_verify(v)) and v.layout == "kv" then return "replay keeps states in layout vk" end
    if is_verify(v) and v.cache ~= "def" then return "a state is read once for several tokens" end
    if is_verify(v) and d.max_tokens * d.token_bytes + d.replay_bytes + d.ring_bytes > arch.shared_per_block then
      return "sixteen tokens and 32 records need more shared memory than a block may have"
    end
    if is_replay(v) and (v.cache == "ahead" or v.cache == "stream") then return "lost on an H200: slices wait for records" end
    if v.cache == "late" then
      if not is_replay(v) then return "only replay has to wait for something else first" end
      if not arch.bulk_copy then return "bulk prefetches need sm_90 or later" end
      if v.lanes == 4 or d.vectors > 4 then return "sums over more lanes" end
    end
    if v.cache == "ahead" then
      if not arch.bulk_copy then return "bulk prefetches, which read ahead, need sm_90 or later" end
      if not (half and half_ahead_shapes or ahead_shapes)[v.layout][v.head_dim][mine] then return "reading ahead is for the shapes that serve many states" end
    end
    for _, shape in ipairs(shapes_of(v)) do
      if shape == mine then return refuse and refuse(v, mine, arch) or true end
    end
    return "a shape that lost on an H200 nearly everywhere, or a neighbour of one"
  end,
  facts = { "blocks", "token_bytes", "thread_bytes", "streaming", "dependent" },
  coords = { "states", "num_tokens" },
  plan = function(v, arch)
    local d = derived(v)
    return {
      threads = d.threads,
      shared = d.max_tokens * d.token_bytes + d.replay_bytes + d.ring_bytes,
      cluster = 1,
      max_registers = math.min(255, 65536 // d.threads),
      facts = {
        blocks = d.blocks,
        token_bytes = d.token_bytes,
        thread_bytes = d.bits // 8 * v.floats,
        streaming = v.cache == "stream" and 1 or 0,
        dependent = arch.cc >= 90 and 1 or 0, -- the templates wait there
      },
    }
  end,
  template = function(v)
    return "kda_decode/kda_decode_" .. (is_replay(v) and "replay_" or is_verify(v) and "verify_" or "") .. v.layout .. ".cu.in"
  end,
  serves = function(v, arch)
    if (is_replay(v) or is_verify(v)) and v.layout == "kv" then return "replay keeps states in layout vk" end
    return true
  end,
  constants = function(v, arch)
    local d = derived(v)
    local where = crowded[scalar][v.head_dim .. " " .. v.layout .. " " .. v.tokens]
    local crowds = where and where:find(arch.name, 1, true) or is_verify(v) and v.head_dim == 64
    return {
      BOUNDS = crowds and d.threads .. ", 1" or tostring(d.threads),
      SCALAR_GATE = scalar and "true" or "false",
      MAX_TOKENS = d.max_tokens,
      MANY = is_many(v),
      STATE_BITS = d.bits,
      PARAMS = is_pool(v) and "gen_kda_decode_pool_params" or "gen_kda_decode_params",
      FP16 = d.bits == 16 and "p.state_fp16" or "false",
      BY_MMA = d.by_mma or false,
      FOLDED_QUADS = v.cache == "late" and 8 or 16, -- what folds should not need more registers than the rest
      KSPLIT = d.ksplit,
      TOKEN_BYTES = d.token_bytes,
      REPLAY_BYTES = d.replay_bytes,
      STREAM = v.cache == "stream" and "true" or "false",
      AHEAD_STATES = ahead_states * (128 * 128 * 32) // (v.head_dim * v.head_dim * d.bits),
      FIRST_STATES = first_states * (128 * 128 * 32) // (v.head_dim * v.head_dim * d.bits),
    }
  end,
  -- Blocks small enough to fill any GPU with few states.
  fallback = function(v)
    local wide = v.head_dim == 128
    if is_verify(v) then
      return v.warps == 4 and v.floats == (wide and state_bits(v) == 16 and 64 or 32)
    end
    if is_replay(v) then
      if v.cache ~= "def" then return false end
      if state_bits(v) == 16 then return v.lanes == (wide and 16 or 8) and v.warps == 4 and v.floats == (wide and 128 or 32) end
      return v.warps == 4 and v.floats == (wide and 64 or 32)
    end
    if v.cache ~= "stream" then return false end
    if v.warps ~= 4 then return false end
    if state_bits(v) == 16 then
      return v.floats == (wide and 32 or 16) and v.lanes == (v.layout == "vk" and (wide and 16 or 8) or 4)
    end
    return v.floats == (v.layout == "kv" and wide and 32 or 16) and v.lanes == (v.layout == "vk" and 16 or 8)
  end,
} end
