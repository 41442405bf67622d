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

-- Of states in pools and of 16 bits, those that kda_decode had first with few states and with many.
local pooled = {
  [64] = {
    vk = { ["16 16 4"] = "stream", ["8 16 8"] = "def", ["16 16 2"] = "def" },
    kv = { ["16 8 4"] = "def stream", ["16 16 8"] = "def", ["32 16 4"] = "ahead" },
  },
  [128] = {
    vk = { ["16 16 4"] = "ahead def stream", ["8 32 8"] = "def", ["16 16 8"] = "stream", ["32 16 4"] = "ahead" },
    kv = { ["32 8 4"] = "stream", ["16 4 4"] = "stream", ["32 16 8"] = "ahead def", ["64 16 4"] = "ahead stream" },
  },
}
local halves = {
  [64] = {
    vk = { ["16 8 4"] = "def stream", ["32 8 4"] = "ahead" },
    kv = { ["16 4 4"] = "def stream", ["32 8 4"] = "ahead" },
  },
  [128] = {
    vk = { ["32 16 4"] = "ahead def stream", ["16 16 8"] = "def", ["16 16 4"] = "def", ["64 16 4"] = "ahead stream" },
    kv = { ["32 4 4"] = "def stream", ["16 4 8"] = "def", ["64 8 4"] = "ahead stream", ["64 16 8"] = "ahead" },
  },
}

-- Of replay, what kda_decode's table picks.
local replayed = {
  replay = { [64] = { ["32 16 4"] = "def" }, [128] = { ["64 16 4"] = "def late", ["128 16 4"] = "late" } },
  replay16 = { [64] = { ["32 8 4"] = "def" }, [128] = { ["128 16 4"] = "def late", ["64 16 4"] = "late" } },
}

return family(include("kda_decode/space.lua")("gdn_decode", true, function(v, shape, arch)
  local half, pool = v.tokens:sub(-2) == "16", v.tokens:sub(-4) == "pool"
  local of_replay = replayed[v.tokens]
  if of_replay then
    local caches = of_replay[v.head_dim][shape]
    return not (caches and caches:find(v.cache, 1, true)) and "no table picks kda_decode's of this shape" or nil
  end
  local caches = (half and halves or pool and pooled or picked)[v.head_dim][v.layout][shape]
  if not (caches and caches:find(v.cache, 1, true)) then return "no table picks kda_decode's of this shape" end
  if (half or pool) and arch.name ~= "sm_90a" and not (v.warps == 4 and v.cache == "stream") then
    return "no GPU of this target has a table, and the fallback serves"
  end
end))
