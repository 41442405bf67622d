-- MLA merge: partial results of cut requests, added up. What variants exist, and why not others.
--
-- The partial results were just written, so they come from L2, and with few of them the time is a chain of latencies:
-- the record, its pieces, the exchange. A warp loads all of its pieces at once.
--
--   warps  of a block
--   split  warps that share the pieces of a row: many where a request has hundreds, one where it has two
--   slice  columns of a block; 128 make four times the blocks, for few rows
local LATENT = 512

return family {
  name = "mla_merge",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
  },
  free = {
    { name = "warps", values = { 4, 8, 16 }, tag = "w" },
    { name = "split", values = { 1, 2, 4, 8, 16 }, tag = "s" },
    { name = "slice", values = { 128, 512 }, tag = "c" },
  },
  legal = function(v, arch)
    if v.split > v.warps then return "a row's pieces are shared by warps of one block" end
    if v.warps == 16 and v.split < 16 then return "16 warps are for one row with as many pieces as a GPU has SMs" end
    if v.warps == 8 and v.split ~= 8 then return "rows of few pieces fill a GPU with more, smaller blocks" end
    if v.slice == 512 and v.split == 16 then return "16 warps with whole rows each: four blocks of them with slices do the same sooner" end
    if v.slice == 128 and v.split < 4 then return "few pieces a row are merged where rows are many: slices would read each record four times" end
    return true
  end,
  facts = { "rows", "split", "slice", "dependent" },
  coords = { "rows", "pieces" },
  plan = function(v, arch)
    return {
      threads = 32 * v.warps,
      shared = 0,
      cluster = 1,
      max_registers = math.min(128, 65536 // (32 * v.warps)),
      facts = {
        rows = v.warps // v.split,
        split = v.split,
        slice = v.slice,
        dependent = arch.cc >= 90 and 1 or 0, -- the template waits there
      },
    }
  end,
  template = function(v) return "mla_merge.cu.in" end,
  constants = function(v, arch)
    return {
      ROWS = v.warps // v.split,
      VECTORS = v.slice // 128,                  -- of four columns, a lane
      PIECES = v.slice == 512 and 8 or v.split == 16 and 9 or 17, -- in flight, a warp: of 136 to 144 with 8 or 16 warps
    }
  end,
  -- Rows are many or pieces few in nearly every problem.
  fallback = function(v) return v.warps == 4 and v.split == 1 and v.slice == 512 end,
}
