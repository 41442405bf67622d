-- Gradients of a chunk's inputs from those of its states, outputs and values: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head.
--
--   blocks  of an SM that registers are counted out for
local function shared(v)
  local tile, groups = 64 * v.head_dim * 2, v.head_dim // 16
  -- d_o, d_v_new, v_new; A_kk; v or a state; sums of beta's gradient, betas, of states and of keys
  return 3 * tile + 64 * 64 * 2 + v.head_dim // 64 * tile + groups * 256 + 256 + 10 * v.head_dim * 4
end

return family {
  name = "kda_bwd_wy",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
  },
  free = {
    { name = "blocks", values = { 1, 2 }, tag = "b" },
  },
  legal = function(v, arch)
    local fit = arch.shared_per_sm // (shared(v) + 1024)
    if shared(v) > arch.shared_per_block then
      return string.format("needs %d bytes of shared memory, %s allows %d", shared(v), arch.name, arch.shared_per_block)
    end
    if v.blocks > fit then return "shared memory holds fewer blocks" end
    if v.blocks > 1 and arch.cc >= 100 then return "128 registers are too few for ptxas on sm_100a and later" end
    if v.blocks < math.min(fit, arch.cc >= 100 and 1 or 2) then return "one block an SM waits for its own loads" end
    return true
  end,
  facts = { "dependent" },
  coords = { "tiles" },
  plan = function(v, arch)
    return {
      threads = 256,
      shared = shared(v),
      cluster = 1,
      max_registers = v.blocks == 2 and 128 or 255,
      facts = { dependent = arch.cc >= 90 and 1 or 0 }, -- the template waits there
    }
  end,
  template = function(v) return "kda_bwd_wy.cu.in" end,
  fallback = function(v, arch) return true end,
}
