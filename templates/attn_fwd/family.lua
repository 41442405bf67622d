-- Attention, forward: what variants exist, and why not others. The arithmetic is in docs/perf/attn_fwd.md.
--
--   kernel  mma    four warps with mma.sync, 16 rows each (of width 256 eight, half of the columns each), blocks of keys brought
--                  by 16-byte cp.async: every architecture
--           wgmma  consumer warpgroups of 64 rows and a producer warp that loads by TMA: sm_90a
--   m       query rows of a block
--   n       keys of a block of them
--   stages  blocks of keys and of values in shared memory
--           Of 8 bits wgmma has a template of its own, which transposes values; mma converts to fp16.
--   queries shared  the products with keys read them from shared memory
--           regs    a group has its queries in registers, and shared memory is free for the next tile's
--   blocks  one   a block a tile
--           pers  as many blocks as the GPU runs at once, each with its share of the tiles: copies for a tile begin while
--                 the one before it ends (wgmma)
--           dyn   the same, and a block takes the next tile of the list when it is about to need one
--           twin  clusters of two blocks that run all the time: two row tiles of a head at once, whose keys and values each
--                 block brings half of, to both (16 bits, width 128, no mask)
--   symbol  cutlass  the kernel's symbol begins with cutlass_: ptxas orders the instructions of such kernels by other rules, which
--                    are not documented and may change. The same source, verified like any other variant; only rows of a tuning table
--                    choose it
--   probs   mixed of 8 bits: probabilities of 8 bits with totals in fp32, but for some keys', which are of fp16. Of width 64, where all are fp16
--                 else, one in six: less exact, and less power, for long launches. Only rows of a tuning table choose it. Of width 128, where
--                 all are of 8 bits else: errors not above FlashAttention-3's (docs/numerics.md). own is there for masks that mixed ones do not know
local CONTROL = 1024 -- barriers

local function is_fp8(v)
  return v.dtype == "e4m3" or v.dtype == "e5m2"
end

local MOST = 227 * 1024 -- of an SM

local function staged(v) -- the output goes by way of shared memory
  return v.kernel == "wgmma" and v.head_dim < 256
end

-- Of 8-bit probabilities a thread has a total in fp32 of each of its head_dim / 2 outputs beside the tensor cores' sums; what does not fit its
-- registers is in shared memory.
local function register_totals(v)
  return v.head_dim == 64 and 20 or v.probs == "mixed" and 56 or 60
end

local function is_half(v) -- values become fp16
  return v.head_dim == 64 and v.probs == "own"
end

local function output_bytes(v) -- of 8 bits 64 columns at once, in the place of totals; of 16 bits in the place of queries that stay in shared memory
  if not staged(v) or (v.queries == "shared" and not is_fp8(v)) then return 0 end
  if is_fp8(v) then return v.m // 16 * 16 * (64 * 2 + 16) end
  return v.m * (v.head_dim * 2 + 16)
end

local function raw_stages(v) -- of 8 bits: blocks of values as they come
  return is_half(v) and 2 or v.stages
end

local function wide_keys(v) -- of a block: those whose values are fp16, too
  return v.probs == "mixed" and 64 or 0
end

local function tile_bytes(v, places) -- of 8 bits values twice: as they come, and as products take them, of width 64 as fp16 with sixteen rows of ones
                                   -- or 64 of them (wide_keys)
  if is_fp8(v) and v.kernel == "wgmma" then
    local ready = v.n * v.head_dim * (is_half(v) and 2 or 1)
    return (places * v.m + (v.stages + raw_stages(v)) * v.n) * v.head_dim + v.stages * ready + (is_half(v) and 16 * 128 or wide_keys(v) * v.head_dim * 2)
  end
  return (places * v.m + 2 * v.stages * v.n) * v.head_dim * 2 -- mma: 8-bit types become fp16
end

local function q_places(v) -- queries of the next tile have a place of their own, where they stay in shared memory and there is room
  local room = tile_bytes(v, 2) + output_bytes(v) + CONTROL <= MOST
  return v.kernel == "wgmma" and v.queries == "shared" and room and 2 or 1
end

local function bytes(v)
  return tile_bytes(v, q_places(v)) + output_bytes(v)
end

local function shared(v)
  if v.kernel == "wgmma" then return bytes(v) + CONTROL end
  return bytes(v) - (v.queries == "regs" and v.m * v.head_dim * 2 or 0) -- they come through the place of the first keys
end

local function mma_legal(v, arch)
  if v.m ~= 64 or v.stages ~= 2 then return "warps with mma.sync: 64 rows, two stages" end
  if v.n ~= (v.head_dim == 256 and 32 or 64) then return "64 keys fit everywhere, of width 256 32" end
  if v.queries ~= (v.head_dim == 256 and "shared" or "regs") then return "a warp has registers for queries up to width 128" end
  if v.blocks ~= "one" then return "blocks are small: several run on an SM, and the next begins as one ends" end
  if v.symbol ~= "own" then return "other symbols of warp groups' kernels" end
  if v.probs ~= "own" then return "probabilities of 8 bits: warp groups' kernels" end
  return true
end

-- What the space holds: where the queries are, stages. Each was the fastest somewhere on an H200; docs/perf/attn_fwd.md has the
-- figures.
local wgmma_shapes = {
  [64] = {
    full = { ["192x128"] = { "shared", 2 } },
    causal = { ["192x112"] = { "shared", 3 }, ["128x128"] = { "regs", 2 } }, -- masks take registers; short requests: smaller tiles
    any = { ["192x112"] = { "shared", 3 } },
  },
  [128] = {
    full = { ["192x64"] = { "shared", 3 }, ["128x128"] = { "regs", 2 } }, -- from about 2,048 rows on the first
    causal = { ["192x64"] = { "shared", 4 }, ["128x128"] = { "regs", 2 } }, -- groups leave out up to two blocks of a tile
    any = { ["192x64"] = { "shared", 2 }, ["128x128"] = { "regs", 2 } },
  },
  [256] = { -- what fits
    full = { ["128x80"] = { "shared", 2 } },
    causal = { ["128x64"] = { "shared", 2 } },
    any = { ["128x64"] = { "shared", 2 } },
  },
}

-- The same of 8 bits. Of width 64 a block goes in two halves. Of width 128 queries in shared memory leave registers for totals.
local fp8_shapes = {
  [64] = {
    full = { ["192x128"] = { "shared", 3 } },
    causal = { ["192x128"] = { "shared", 3 } },
    any = { ["192x128"] = { "shared", 3 } },
  },
  [128] = {
    full = { ["128x128"] = { "shared", 3 } },
    causal = { ["128x128"] = { "shared", 3 } },
    any = { ["128x128"] = { "shared", 3 } },
  },
  [256] = { full = {}, causal = {}, any = {} }, -- the portable kernel serves these
}

local function wgmma_legal(v, arch)
  if not arch.wgmma then return "wgmma is an instruction of sm_90a" end
  if v.blocks == "twin" and (is_fp8(v) or v.head_dim ~= 128 or v.m ~= 128 or v.mask ~= "full") then
    return "blocks in twos: 16 bits, width 128, tiles of 128 rows that see every key"
  end
  local shape = (is_fp8(v) and fp8_shapes or wgmma_shapes)[v.head_dim][v.mask][v.m .. "x" .. v.n]
  if not shape then return "not among the tile shapes that were the fastest anywhere" end
  if v.queries ~= shape[1] then return "queries are in registers where there is room for them" end
  if v.stages ~= shape[2] then return "as many stages as were measured to help" end
  if is_fp8(v) and v.head_dim == 128 and v.mask ~= "any" and v.probs == "own" then
    return "of width 128 some keys' probabilities are of fp16, for errors not above FlashAttention-3's"
  end
  if v.probs ~= "own" and (not is_fp8(v) or v.mask == "any") then
    return "probabilities of two types: 8 bits, where blocks of keys go by whole rounds"
  end
  if v.probs ~= "own" and v.head_dim == 64 and v.blocks == "pers" then
    return "of width 64 they are for long launches, where static shares were not the fastest"
  end
  local published = v.dtype == "e4m3" or v.dtype == "fp16" and v.mask == "full" -- some of 8 bits gain, of 16 bits none (docs/perf/attn_fwd.md)
  if v.symbol ~= "own" and (not published or v.head_dim > 128 or v.mask == "any" or v.blocks == "one" or v.blocks == "pers") then
    return "other symbols where they gain, and of 16 bits where they were seen not to"
  end
  return true
end

return family {
  name = "attn_fwd",
  required = {
    { name = "dtype", values = { "bf16", "fp16", "e4m3", "e5m2" } },
    { name = "head_dim", values = { 64, 128, 256 }, tag = "d" },
    { name = "mask", values = { "full", "causal", "any" } },
  },
  free = {
    { name = "kernel", values = { "mma", "wgmma" } },
    { name = "m", values = { 64, 128, 192 }, tag = "m" },
    { name = "n", values = { 32, 64, 80, 112, 128 }, tag = "n" },
    { name = "stages", values = { 2, 3, 4 }, tag = "st" },
    { name = "queries", values = { "shared", "regs" }, tag = "q" },
    { name = "blocks", values = { "one", "pers", "dyn", "twin" } },
    { name = "symbol", values = { "own", "cutlass" }, unspelled = "own" },
    { name = "probs", values = { "own", "mixed" }, tag = "p", unspelled = "own" },
  },
  legal = function(v, arch)
    if v.kernel == "wgmma" then return wgmma_legal(v, arch) end
    return mma_legal(v, arch)
  end,
  facts = { "q_rows", "kv_rows", "wgmma", "persistent", "dependent", "dynamic", "renamed" },
  coords = { "heads", "q_len", "kv_len" },
  plan = function(v, arch)
    local wgmma = v.kernel == "wgmma"
    local groups = v.m // 64
    return {
      threads = wgmma and 128 * (groups + 1) or v.head_dim == 256 and 256 or 128, -- mma: a warp has at most 128 columns of output
      shared = shared(v),
      cluster = v.blocks == "twin" and 2 or 1,
      max_registers = wgmma and (groups == 2 and 168 or 128) or 255, -- wgmma: before the groups trade them
      facts = {
        q_rows = v.m,
        kv_rows = v.n,
        wgmma = wgmma and 1 or 0,
        persistent = v.blocks ~= "one" and 1 or 0,
        dynamic = v.blocks == "dyn" and 1 or 0,
        dependent = arch.cc >= 90 and 1 or 0, -- the templates wait there
        renamed = (v.symbol ~= "own" or (v.probs ~= "own" and v.head_dim == 64)) and 1 or 0, -- only a row of a table chooses it
      },
    }
  end,
  symbol = function(v) return v.symbol == "own" and "" or v.symbol .. "_" end,
  template = function(v)
    local half = is_fp8(v) and v.kernel == "wgmma" and is_half(v)
    return "attn_fwd_" .. (is_fp8(v) and "fp8_" or "") .. (half and "half_" or "") .. v.kernel .. ".cu.in"
  end,
  constants = function(v, arch)
    -- Of 65,536 registers, those that the producer group gives away (setmaxnreg).
    return {
      REGISTERS = v.m == 192 and 160 or is_fp8(v) and 232 or 240,
      PRODUCER_REGISTERS = v.m == 192 and 32 or is_fp8(v) and 40 or 24, -- of 8 bits it prepares values, too
      Q_PLACES = q_places(v),
      V_STAGES = raw_stages(v),
      REGISTER_TOTALS = register_totals(v),
      WIDE_KEYS = wide_keys(v),
      STAGED = staged(v) and "true" or "false",
      ORDER = ({ one = "one", pers = "static", dyn = "dynamic", twin = "twin" })[v.blocks],
      TWIN = v.blocks == "twin",
    }
  end,
  fallback = function(v) return v.kernel == "mma" end,
}
