-- Gated DeltaNet decode: kda_decode with one gate for all channels of K. The states, and so nearly all bytes, are the same, so
-- the space is what an H200's table picks of kda_decode's.
local picked = {
  [64] = {
    vk = { ["16 16 8"] = "def stream", ["8 16 8"] = "def stream", ["16 16 2"] = "def stream", ["32 16 4"] = "stream",
           ["16 8 4"] = "stream", ["16 16 4"] = "stream" },
    kv = { ["16 16 8"] = "def stream", ["16 8 4"] = "def stream", ["32 16 4"] = "ahead stream" },
  },
  [128] = {
    vk = { ["16 16 4"] = "def stream", ["16 16 8"] = "def stream", ["16 32 8"] = "stream", ["8 32 8"] = "def stream",
           ["32 16 8"] = "stream" },
    kv = { ["16 4 4"] = "stream", ["16 4 8"] = "stream", ["32 16 8"] = "ahead def", ["64 16 4"] = "ahead def stream",
           ["32 8 4"] = "stream" },
  },
}

return family(include("kda_decode/space.lua")("gdn_decode", true, function(v, shape)
  if v.tokens:sub(-2) == "16" then -- of 16-bit states, which no table has yet, the shapes of the same bytes
    if v.warps == 2 or v.floats == 16 and v.head_dim == 128 then return "other shapes are as good" end
    return nil
  end
  local caches = picked[v.head_dim][v.layout][shape]
  if not (caches and caches:find(v.cache, 1, true)) then return "no table picks kda_decode's of this shape" end
end))
