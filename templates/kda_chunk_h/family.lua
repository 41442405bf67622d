-- The state of Kimi Delta Attention from chunk to chunk: what variants exist, and why not others.
--
-- A block of 4 warps has 64 columns of V of one sequence and value head.
--
--   kernel  mma    mma.sync: every architecture
--           wgmma  sm_90a
--   stages  chunks whose operands are on their way or in use
local function shared(v)
  local tile, cell = 64 * v.head_dim * 2, 64 * 64 * 2
  return v.stages * (2 * tile + cell) + tile + cell + 2 * v.head_dim * 4 -- w, kg, u; S', vn'; decays
end

return family {
  name = "kda_chunk_h",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
  },
  free = {
    { name = "kernel", values = { "mma", "wgmma" } },
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
  facts = { "dependent", "stages", "wgmma" },
  plan = function(v, arch)
    return {
      threads = 128,
      shared = shared(v),
      cluster = 1,
      max_registers = 255,
      -- dependent: the template waits there
      facts = { dependent = arch.cc >= 90 and 1 or 0, stages = v.stages, wgmma = v.kernel == "wgmma" and 1 or 0 },
    }
  end,
  template = function(v) return "kda_chunk_h.cu.in" end,
  fallback = function(v, arch) return v.kernel == "mma" end,
}
