-- The variants of a stage whose blocks of 8 warps have one chunk of one head each.
--
--   blocks  of an SM that registers are counted out for
local stage = {}

-- What such families have alike. `own` has
--   name, blocks          the family's, and the values of its axis
--   shared(v)             bytes of shared memory
--   legal(v, arch, fit)   optional: a reason against a variant, or nil; `fit` blocks have shared memory
--   required              optional: a third required axis
function stage.family(own)
  local required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
    own.required,
  }
  return {
    name = own.name,
    required = required,
    free = { { name = "blocks", values = own.blocks, tag = "b" } },
    legal = function(v, arch)
      local bytes = own.shared(v)
      if bytes > arch.shared_per_block then
        return string.format("needs %d bytes of shared memory, %s allows %d", bytes, arch.name, arch.shared_per_block)
      end
      local fit = arch.shared_per_sm // (bytes + 1024)
      if v.blocks > fit then return "shared memory holds fewer blocks" end
      return own.legal and own.legal(v, arch, fit) or true
    end,
    facts = { "dependent" },
    coords = { "tiles" },
    plan = function(v, arch)
      return {
        threads = 256,
        shared = own.shared(v),
        cluster = 1,
        max_registers = math.min(255, 65536 // 256 // v.blocks // 8 * 8),
        facts = { dependent = arch.cc >= 90 and 1 or 0 }, -- the template waits there
      }
    end,
    template = function(v) return own.name .. ".cu.in" end,
    fallback = function(v) return true end,
  }
end

return stage
