-- The gradient of Kimi Delta Attention's state from chunk to chunk: what variants exist, and why not others.
--
-- Columns of V are independent, so a block of 4 warps has 64 of them, of one sequence and value head.
--
--   stages  chunks whose operands are on their way or in use
local function shared(v)
  local tile, cell = 64 * v.head_dim * 2, 64 * 64 * 2
  return 3 * tile + 2 * cell + tile + cell + 2 * v.head_dim * 4 -- w, kg, qg, d_v, d_o; d_h, d_v_new; decays
end

return family {
  name = "kda_bwd_dhu",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
  },
  free = {
    { name = "stages", values = { 1 }, tag = "st" },
  },
  legal = function(v, arch)
    if shared(v) > arch.shared_per_block then
      return string.format("needs %d bytes of shared memory, %s allows %d", shared(v), arch.name, arch.shared_per_block)
    end
    return true
  end,
  facts = { "dependent" },
  coords = { "states", "seq_len" },
  plan = function(v, arch)
    return {
      threads = 128,
      shared = shared(v),
      cluster = 1,
      max_registers = 255,
      facts = { dependent = arch.cc >= 90 and 1 or 0 }, -- the template waits there
    }
  end,
  template = function(v) return "kda_bwd_dhu.cu.in" end,
  fallback = function(v, arch) return true end,
}
