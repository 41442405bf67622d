-- Gates of Kimi Delta Attention cumulated, q and k normalized: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head's gates, or of one query head's q or k.
return family(include("kda/stage.lua").family {
  name = "kda_gate",
  blocks = { 3, 4 },
  shared = function(v) return 8 * v.head_dim * 4 end, -- a warp's sums
  legal = function(v, arch, fit)
    if v.blocks ~= (arch.cc >= 90 and 4 or 3) then return "the loads under way fill 64 registers on sm_90 and later, 80 before" end
  end,
})
