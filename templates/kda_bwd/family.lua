-- Kimi Delta Attention backward: the launches that are not a stage's. What variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head.
local ROWS = 64

local function shared(v)
  local tile = ROWS * v.head_dim * 2
  -- Rows of q and k, columns of k, values; A_qk, A, its inverse; diagonal blocks; middle factors; beta; norms of q and k; a flag
  return 4 * tile + 3 * ROWS * ROWS * 2 + 4096 + 7 * v.head_dim * 4 + ROWS * 4 + 2 * ROWS * 4 + 16
end

return family(include("kda/stage.lua").family {
  name = "kda_bwd",
  required = { name = "safe_gate", values = { "safe", "any" } },
  blocks = { 1, 2 },
  shared = shared,
  legal = function(v, arch, fit)
    if v.blocks < math.min(fit, 2) then return "one block an SM waits for its own loads" end
  end,
})
