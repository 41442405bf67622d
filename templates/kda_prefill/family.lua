-- Kimi Delta Attention, prefill: the launch that is its own, the recurrence between chunks. The other one, kda_intra, is a
-- part. The space is kda_inter's.
return family(include("kda/space.lua").family("kda_prefill", true))
