-- A decode step of Gated DeltaNet in one launch: kda_step with one gate for all channels of K. The states, and so nearly all
-- bytes, are the same, so the space is what serves few and many of kda_step's.
local picked = { ["32 16 16 1"] = "stream", ["64 16 8 1"] = "stream", ["32 16 8 2"] = "stream", ["16 16 8 4"] = "stream" }

return family(include("kda_step/space.lua")("gdn_step", true, function(shape, v)
  if picked[shape] ~= v.cache then return "kda_step's of this shape is not picked for few states, nor for many" end
end))
