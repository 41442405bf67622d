-- Gradients of a chunk's inputs from those of its states, outputs and values: what variants exist, and why not others.
--
-- A block has one chunk of one value head.
--
--   kernel  mma    8 warps with mma.sync, one place for v, then d_h, then h: every architecture
--           wgmma  a warpgroup to 64 columns, a place for each state: sm_90a
--   blocks  of an SM that registers are counted out for
--   ahead   wgmma: of 8 columns, those whose inputs are on their way to registers
local function shared(v)
  local tile, inverse, betas = 64 * v.head_dim * 2, 64 * 64 * 2, 256
  local groups = v.head_dim // 64
  if v.kernel == "wgmma" then
    -- d_v_new, v_new, h and v, d_h; A_kk; sums of beta's gradient, betas, last gates, sums of states and of keys
    return (4 + groups) * tile + inverse + groups * 256 + betas + 9 * v.head_dim * 4
  end
  -- d_o, d_v_new, v_new; A_kk; v or a state; sums of beta's gradient, betas, of states and of keys
  return 3 * tile + inverse + groups * tile + v.head_dim // 16 * 256 + betas + 10 * v.head_dim * 4
end

local function legal_wgmma(v, arch)
  if not arch.wgmma then return "wgmma is an instruction of sm_90a" end
  if v.blocks ~= 256 // v.head_dim then return "the blocks that shared memory holds hide each other's first loads" end
  if v.ahead == 0 then return "registers would wait for each load" end
  return true
end

return family {
  name = "kda_bwd_wy",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
  },
  free = {
    { name = "kernel", values = { "mma", "wgmma" }, unspelled = "mma" },
    { name = "blocks", values = { 1, 2, 4 }, tag = "b" },
    { name = "ahead", values = { 0, 2, 4 }, tag = "a", unspelled = 0 },
  },
  legal = function(v, arch)
    local fit = arch.shared_per_sm // (shared(v) + 1024)
    if shared(v) > arch.shared_per_block then
      return string.format("needs %d bytes of shared memory, %s allows %d", shared(v), arch.name, arch.shared_per_block)
    end
    if v.blocks > fit then return "shared memory holds fewer blocks" end
    if v.kernel == "wgmma" then return legal_wgmma(v, arch) end
    if v.ahead > 0 then return "loads ahead are wgmma's" end
    if v.blocks > 2 then return "registers hold fewer blocks" end
    if v.blocks > 1 and arch.cc >= 100 then return "128 registers are too few for ptxas on sm_100a and later" end
    if v.blocks < math.min(fit, arch.cc >= 100 and 1 or 2) then return "one block an SM waits for its own loads" end
    return true
  end,
  facts = { "dependent", "wgmma" },
  coords = { "tiles" },
  plan = function(v, arch)
    local wgmma = v.kernel == "wgmma"
    return {
      threads = wgmma and 2 * v.head_dim or 256,
      shared = shared(v),
      cluster = 1,
      max_registers = (wgmma or v.blocks == 2) and 128 or 255,
      -- dependent: the template waits there
      facts = { dependent = arch.cc >= 90 and 1 or 0, wgmma = wgmma and 1 or 0 },
    }
  end,
  template = function(v) return v.kernel == "wgmma" and "kda_bwd_wy_wgmma.cu.in" or "kda_bwd_wy.cu.in" end,
  fallback = function(v, arch) return v.kernel == "mma" end,
}
