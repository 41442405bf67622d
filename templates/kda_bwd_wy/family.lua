-- Gradients of a chunk's inputs from those of its states, outputs and values: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head.
local function shared(v)
  local tile, groups = 64 * v.head_dim * 2, v.head_dim // 16
  -- d_o, d_v_new, v_new; A_kk; v or a state; sums of beta's gradient, betas, of states and of keys
  return 3 * tile + 64 * 64 * 2 + v.head_dim // 64 * tile + groups * 256 + 256 + 10 * v.head_dim * 4
end

return family(include("kda/stage.lua").family {
  name = "kda_bwd_wy",
  blocks = { 1, 2 },
  shared = shared,
  legal = function(v, arch, fit)
    if v.blocks > 1 and arch.cc >= 100 then return "128 registers are too few for ptxas on sm_100a and later" end
    if v.blocks < math.min(fit, arch.cc >= 100 and 1 or 2) then return "one block an SM waits for its own loads" end
  end,
})
