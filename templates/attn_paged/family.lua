-- Attention over paged caches: what variants exist, and why not others. The arithmetic is in docs/perf/attn_paged.md.
--
--   rows    packed rows of a warp: query tokens x query heads of a key head, 8 at least
--   team    warps that share their keys, each with rows of its own: row tiles of rows x team
--   warps   of a block
--   stages  tiles of a team's ring, each of 16 (of narrow keys 32) keys and values
local function element_bytes(v)
  return v.cache == "e4m3" and 1 or 2
end

local function wide(v) -- rows of 512 bytes
  return v.head_dim == 256 and v.cache == "same"
end

local function keys_of(v) -- of a tile
  return (v.head_dim * element_bytes(v) >= 256 or v.rows * v.head_dim >= 4096) and 16 or 32
end

local function shared(v) -- as shape.cuh has it
  local pitch, keys = v.head_dim * element_bytes(v), keys_of(v)
  local teams, tiles = v.warps // v.team, v.head_dim // 16
  local owners = math.min(teams, tiles)
  local ring = teams * v.stages * 2 * keys * pitch
  local exchange = v.team * owners * (teams - 1) * (tiles // owners) * 512
  local rows = v.rows * v.team
  local control = (3 * teams + 1) * rows * 4 + 16 + 4 + 32 + 44 + 12 + 4 * 56 + 16
  return (ring + exchange + rows * v.head_dim * 2 + control + 127) // 128 * 128
end

local RESERVED = 1024 -- of a block, by the driver

local function blocks(v, arch) -- on an SM, by shared memory; of registers there are 65,536 for two blocks of four warps or one of eight
  local fits = arch.shared_per_sm // (shared(v) + RESERVED)
  return math.max(1, math.min(fits, 8 // v.warps))
end

return family {
  name = "attn_paged",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "cache", values = { "same", "e4m3" } },
    { name = "head_dim", values = { 64, 128, 256 }, tag = "d" },
  },
  free = {
    { name = "kernel", values = { "stream" } },
    { name = "rows", values = { 8, 16, 32 }, tag = "r" },
    { name = "team", values = { 1, 2 }, tag = "t" },
    { name = "warps", values = { 2, 4, 8 }, tag = "w" },
    { name = "stages", values = { 2, 3 }, tag = "st" },
  },
  legal = function(v, arch)
    if shared(v) > arch.shared_per_block then return "the ring and what the teams exchange take more shared memory than a block has" end
    if v.team == 2 and v.rows ~= 32 then return "teams are for more rows than a warp holds" end
    if v.head_dim == 256 and v.rows == 32 then return "outputs of 32 rows and 256 columns take more registers than a thread has" end
    if v.warps == 2 and not (wide(v) and v.rows == 16 and v.stages == 2) then return "two warps are for what holds no ring of four" end
    if v.head_dim == 256 and v.warps == 8 then return "keys of 256 columns fill the ring of four warps" end
    if v.rows == 32 and v.warps == 4 then return "of 32 rows a warp has no registers left for a second block" end
    return true
  end,
  facts = { "rows", "keys", "stages", "teams", "dependent" },
  coords = { "kv_rows", "units", "rows" },
  plan = function(v, arch)
    return {
      threads = 32 * v.warps,
      shared = shared(v),
      cluster = 1,
      max_registers = math.min(255, 65536 // (32 * v.warps * blocks(v, arch)) // 8 * 8),
      facts = {
        rows = v.rows * v.team,
        keys = keys_of(v),
        stages = v.stages,
        teams = v.warps // v.team,
        dependent = arch.cc >= 90 and 1 or 0, -- the template waits there
      },
    }
  end,
  template = function(v) return "attn_paged_stream.cu.in" end,
  constants = function(v, arch)
    return { BOUNDS = 32 * v.warps .. ", " .. blocks(v, arch) }
  end,
  -- What fits everywhere: 99 KiB.
  fallback = function(v) return v.rows == 16 and v.team == 1 and v.warps == (wide(v) and 2 or 4) and v.stages == 2 end,
}
