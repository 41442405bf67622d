-- y = alpha * x, small and quick to compile: what the generator's tests build.
return family {
  name = "tiny",
  required = {
    { name = "dtype", values = { "fp32", "fp64" } },
  },
  free = {
    { name = "width", values = { 1, 2, 4, 8 }, tag = "v" },
    { name = "warps", values = { 1, 4 }, tag = "w" },
    { name = "path", values = { "plain", "ring" } },
  },
  legal = function(v, arch)
    if v.path == "ring" and not arch.bulk_copy then return "the ring needs bulk copies" end
    if v.path == "ring" and v.width == 1 then return "a ring of single elements is never the best" end
    if v.width == 8 and v.warps == 1 then return "one warp of eight elements is too small a block" end
    return true
  end,
  facts = { "elements", "ring" },
  plan = function(v, arch)
    local threads = 32 * v.warps
    return {
      threads = threads,
      shared = v.path == "ring" and threads * v.width * 8 or 0,
      cluster = 1,
      max_registers = 64,
      facts = { elements = threads * v.width, ring = v.path == "ring" and 1 or 0 },
    }
  end,
  template = function(v) return "tiny.cu.in" end,
  constants = function(v, arch) return { ELEMENT = v.dtype == "fp32" and "float" or "double", HALF = f32(0.5) } end,
  fallback = function(v) return v.width == 1 and v.warps == 4 and v.path == "plain" end,
}
