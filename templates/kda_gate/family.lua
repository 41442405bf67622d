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
  legal = function(v, arch)
    if v.blocks ~= (arch.cc >= 90 and 4 or 3) then return "the loads under way fill 64 registers on sm_90 and later, 80 before" end
    return true
  end,
  facts = { "dependent" },
  coords = { "tiles" },
  plan = function(v, arch)
    return {
      threads = 256,
      shared = 8 * v.head_dim * 4, -- a warp's sums
      cluster = 1,
      max_registers = 65536 // 256 // v.blocks // 8 * 8,
      facts = { dependent = arch.cc >= 90 and 1 or 0 }, -- the template waits there
    }
  end,
  template = function(v) return "kda_gate.cu.in" end,
  fallback = function(v, arch) return true end,
}
