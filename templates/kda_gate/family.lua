-- Gates of Kimi Delta Attention cumulated, q and k normalized: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head's gates, or of one query head's q or k.
--
--   blocks  of an SM that registers are counted out for
return family {
  name = "kda_gate",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
  },
  free = {
    { name = "blocks", values = { 3, 4 }, tag = "b" },
  },
  legal = function(v, arch) return true end,
  facts = { "dependent" },
  plan = function(v, arch)
    return {
      threads = 256,
      shared = 8 * v.head_dim * 4, -- a warp's sums
      cluster = 1,
      max_registers = v.blocks == 4 and 64 or 80,
      facts = { dependent = arch.cc >= 90 and 1 or 0 }, -- the template waits there
    }
  end,
  template = function(v) return "kda_gate.cu.in" end,
  fallback = function(v) return v.blocks == 3 end, -- four spill where PTX is for sm_80
}
