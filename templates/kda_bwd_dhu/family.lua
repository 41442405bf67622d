-- The gradient of Kimi Delta Attention's state from chunk to chunk: what variants exist, and why not others.
--
-- Columns of V are independent, so a block has 64 of them, of one sequence and value head.
--
--   kernel  mma    four warps with mma.sync that load and store as well: every architecture
--           wgmma  a warp group, and four warps more that load and store for it: sm_90a
--   stages  chunks whose operands are on their way or in use
local function shared(v)
  local tile, cell, decay = 64 * v.head_dim * 2, 64 * 64 * 2, v.head_dim * 4
  local stage = 3 * tile + 2 * cell -- w, kg, qg; d_v, d_o
  if v.kernel == "mma" then return stage + tile + cell + 2 * decay end -- d_h, d_v_new
  return v.stages * (stage + decay + 16) + 2 * (tile + 8) -- and barriers; d_v_new where d_v was
end

return family {
  name = "kda_bwd_dhu",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
  },
  free = {
    { name = "kernel", values = { "mma", "wgmma" }, unspelled = "mma" },
    { name = "stages", values = { 1, 2, 3 }, tag = "st" },
  },
  legal = function(v, arch)
    if v.kernel == "wgmma" and not arch.wgmma then return "wgmma is an instruction of sm_90a" end
    if v.kernel == "wgmma" and v.stages == 1 then return "a chunk takes less time than its operands' way" end
    if v.kernel == "mma" and v.stages > 1 then return "blocks beside each other hide as much as a second stage" end
    if shared(v) > arch.shared_per_block then
      return string.format("needs %d bytes of shared memory, %s allows %d", shared(v), arch.name, arch.shared_per_block)
    end
    return true
  end,
  facts = { "dependent", "wgmma" },
  coords = { "states", "seq_len" },
  plan = function(v, arch)
    return {
      threads = v.kernel == "wgmma" and 256 or 128,
      shared = shared(v),
      cluster = 1,
      max_registers = 255,
      -- dependent: the template waits there
      facts = { dependent = arch.cc >= 90 and 1 or 0, wgmma = v.kernel == "wgmma" and 1 or 0 },
    }
  end,
  template = function(v) return v.kernel == "wgmma" and "kda_bwd_dhu_wgmma.cu.in" or "kda_bwd_dhu.cu.in" end,
  fallback = function(v, arch) return v.kernel == "mma" end,
}
