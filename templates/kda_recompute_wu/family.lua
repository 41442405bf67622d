-- w and u of Kimi Delta Attention from the inverse: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head.
local function shared(v)
  return 2 * 64 * v.head_dim * 2 + 64 * 64 * 2 -- k and v, the inverse
end

return family(include("kda/stage.lua").family {
  name = "kda_recompute_wu",
  blocks = { 1, 2, 3, 4 },
  shared = shared,
  legal = function(v, arch, fit)
    if v.blocks < math.min(fit, 4) then return "fewer blocks an SM wait for their own loads" end
  end,
})
