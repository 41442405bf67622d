-- An output's gradient inside a chunk of Kimi Delta Attention: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head.
local function shared(v)
  return 2 * 64 * v.head_dim * 2 + 64 * 64 * 2 -- v_new, d_o, A_qk
end

return family(include("kda/stage.lua").family {
  name = "kda_bwd_dav",
  blocks = { 2, 4 },
  shared = shared,
  legal = function(v, arch, fit)
    if v.blocks < math.min(fit, 4) // 2 * 2 then return "fewer blocks an SM wait for their own loads" end
  end,
})
