-- A decode step of Kimi Delta Attention in one launch: a gate for each channel of K.
return family(include("kda_step/space.lua")("kda_step", false))
