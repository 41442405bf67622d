-- Gradients of raw q, k and beta: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one query head's q or k, or of all betas.
return family(include("kda/stage.lua").family {
  name = "kda_qk_bwd",
  blocks = { 2, 3 },
  shared = function(v) return 0 end,
  legal = function(v, arch, fit)
    if v.blocks ~= (v.head_dim == 64 and 3 or 2) then return "the loads under way fill 128 registers, or 80 where heads are small" end
  end,
})
