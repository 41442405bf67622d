-- Gated DeltaNet inside a chunk: what variants exist, and why not others.
--
-- A block of 8 warps computes one chunk of one value head. It issues a fraction of what kda_intra does, so what it waits for
-- is its loads, and blocks beside each other hide them.
local ROWS = 64

local function shared(v)
  -- Rows of q and k; A_kk, X; diagonal blocks; betas, gates, two norms; a flag
  return 2 * ROWS * v.head_dim * 2 + 2 * ROWS * ROWS * 2 + 4096 + 4 * ROWS * 4 + 128
end

return family(include("kda/stage.lua").family {
  name = "gdn_intra",
  blocks = { 1, 2, 3, 4 },
  shared = shared,
  legal = function(v, arch, fit)
    if v.blocks < math.min(fit, 4) then return "fewer blocks an SM wait for their own loads" end
  end,
})
