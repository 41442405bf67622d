-- Kimi Delta Attention between chunks.
return family(include("kda/space.lua").family("kda_inter"))
