-- What the scores' gradients make of a chunk's inputs: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head.
local function shared(v)
  local tile, groups = 64 * v.head_dim * 2, v.head_dim // 16
  local diagonals = v.safe_gate == "safe" and 64 * 4 or 2 * 64 * 17 * 4
  -- q, beta k and k, scaled; both gradients of scores, and their diagonals; anchors; betas; sums of beta's gradient
  return 3 * tile + 2 * 64 * 64 * 2 + diagonals + 5 * v.head_dim * 4 + 256 + groups * 256
end

return family(include("kda/stage.lua").family {
  name = "kda_bwd_intra",
  required = { name = "safe_gate", values = { "safe", "any" } },
  blocks = { 1, 2 },
  shared = shared,
  legal = function(v, arch, fit)
    if v.blocks < math.min(fit, 2) then return "one block an SM waits for its own loads" end
  end,
})
