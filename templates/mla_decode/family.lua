-- MLA decode over a paged latent cache: what variants exist, and why not others.
--
-- A block handles a tile of `q` packed rows (query token x head) and walks over the cache in tiles of `kv` rows. All 512
-- columns of the output stay in fp32 registers, so they are shared out over the block's warps.
--
--   kernel  mma    warps with mma.sync, tiles brought by 16-byte cp.async: every architecture, any page size
--           wgmma  two warp groups that own the scores of every other tile and half of the output's columns each, and a
--                  producer group: sm_90a
--   q       packed rows of a block
--   kv      cache rows of a tile
--   stages  tiles in shared memory
--   qk      shard  the scores of a tile are shared out, the probabilities gathered through shared memory
--           dup    every owner of output columns works out all scores itself, nothing is exchanged
--   slab    rows whose output columns one warp owns (mma): 32 read V half as often as 16
--   load    cpasync  every thread copies (mma)
--           tma      the copy engine brings boxes of whole pages' rows (wgmma, page_size a multiple or a divisor of 64)
--           gather   the producer's threads copy 16 bytes each (wgmma, any page size)
local LATENT, ROPE, BLOCK_WARPS = 512, 64, 8

local function derived(v)
  local d = {}
  local element = v.cache == "e4m3" and 1 or 2
  d.rope = v.rope
  d.q_bytes = v.q * (LATENT + v.rope) * 2
  d.row_bytes = (LATENT + v.rope) * element         -- of the cache
  d.stage_bytes = v.kv * d.row_bytes
  d.slabs = v.q // v.slab                           -- mma: warps along the rows
  d.columns = d.slabs > 0 and BLOCK_WARPS // d.slabs or 0 -- mma: warps along the output's columns
  return d
end

return family {
  name = "mla_decode",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "cache", values = { "same", "e4m3" } },
    { name = "rope", values = { 64, 0 }, tag = "r" },
  },
  free = {
    { name = "kernel", values = { "mma", "wgmma" } },
    { name = "q", values = { 16, 32, 64 }, tag = "q" },
    { name = "kv", values = { 16, 32, 64 }, tag = "kv" },
    { name = "stages", values = { 1, 2, 3 }, tag = "st" },
    { name = "qk", values = { "shard", "dup" } },
    { name = "slab", values = { 16, 32 }, tag = "m" },
    { name = "load", values = { "cpasync", "tma", "gather" } },
  },
  facts = { "q_rows", "kv_rows", "stages", "shard", "tensor_map", "dependent" },
}
