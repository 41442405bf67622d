-- A decode step of Gated DeltaNet in one launch: kda_step with one gate for all channels of K.
return family(include("kda_step/space.lua")("gdn_step", true))
