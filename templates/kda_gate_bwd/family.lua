-- Gradients of raw gates, and their sums: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head.
return family(include("kda/stage.lua").family {
  name = "kda_gate_bwd",
  blocks = { 2, 3 },
  shared = function(v) return 8 * v.head_dim * 4 + 8 * 4 + 16 end, -- warps' sums, of channels and of all of them; whether others are done
  legal = function(v, arch, fit)
    if v.blocks ~= (v.head_dim == 64 and 3 or 2) then return "the loads under way fill 128 registers, or 80 where heads are small" end
  end,
})
