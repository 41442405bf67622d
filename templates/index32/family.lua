-- Lists of 64-bit indices as 32 bits: what variants exist, and why not others.
--
-- Lists have some hundred entries, so the time is a launch and one load's latency, whatever the block.
return family {
  name = "index32",
  required = {
    { name = "from", values = { "int64" } },
  },
  free = {
    { name = "warps", values = { 4 }, tag = "w" },
  },
  legal = function(v, arch) return true end,
  facts = { "dependent" },
  coords = { "entries" },
  plan = function(v, arch)
    return {
      threads = 32 * v.warps,
      shared = 0,
      cluster = 1,
      max_registers = 32,
      facts = { dependent = arch.cc >= 90 and 1 or 0 }, -- the template waits there
    }
  end,
  template = function(v) return "index32.cu.in" end,
  fallback = function(v) return true end,
}
