-- Gradients of raw gates, and their sums: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head.
--
--   blocks  of an SM that registers are counted out for
return family {
  name = "kda_gate_bwd",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
  },
  free = {
    { name = "blocks", values = { 2, 3 }, tag = "b" },
  },
  legal = function(v, arch)
    if v.blocks ~= (v.head_dim == 64 and 3 or 2) then return "the loads under way fill 128 registers, or 80 where heads are small" end
    return true
  end,
  facts = { "dependent" },
  coords = { "tiles" },
  plan = function(v, arch)
    return {
      threads = 256,
      shared = 8 * v.head_dim * 4 + 8 * 4 + 16, -- warps' sums, of channels and of all of them; whether others are done
      cluster = 1,
      max_registers = 65536 // 256 // v.blocks // 8 * 8,
      facts = { dependent = arch.cc >= 90 and 1 or 0 }, -- the template waits there
    }
  end,
  template = function(v) return "kda_gate_bwd.cu.in" end,
  fallback = function(v, arch) return true end,
}
