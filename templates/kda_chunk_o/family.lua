-- Outputs of Kimi Delta Attention from states: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head.
local function shared(v)
  local tile = 64 * v.head_dim * 2
  return 2 * tile + v.head_dim // 64 * tile + 64 * 64 * 2 -- q, values, state, A_qk
end

return family(include("kda/stage.lua").family {
  name = "kda_chunk_o",
  blocks = { 1, 2, 3 },
  shared = shared,
  legal = function(v, arch, fit)
    if v.blocks < math.min(fit, 3) then return "fewer blocks an SM wait for their own loads" end
  end,
})
