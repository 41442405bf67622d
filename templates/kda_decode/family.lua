-- Kimi Delta Attention decode: a gate for each channel of K.
return family(include("kda_decode/space.lua")("kda_decode", false))
