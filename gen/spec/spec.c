#include "spec/spec.h"

#include "expand/source.h"
#include "spec/default_space.h"
#include "spec/watchdog.h"
#include "util/error.h"
#include "util/file.h"
#include "util/glob.h"

#include <errno.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

/* sandbox.lua, family.lua and spec.lua, put into the program by the build. */
extern const unsigned char sandbox_lua[], family_lua[], spec_lua[];
extern const size_t sandbox_lua_size, family_lua_size, spec_lua_size;

static struct session *session_of(lua_State *L)
{
    return *(struct session **)lua_getextraspace(L);
}

/* ---- what spec.lua calls ---------------------------------------------------- */

static int core_load(lua_State *L)
{
    size_t size;
    const char *source = luaL_checklstring(L, 1, &size);
    load_user(session_of(L), source, size, luaL_checkstring(L, 2));
    lua_pushvalue(L, 3);
    lua_setupvalue(L, -2, 1);
    return 1;
}

/* The text of a Lua file below the templates folder; else nil and why not. */
static int core_read(lua_State *L)
{
    struct session *session = session_of(L);
    const char *name = luaL_checkstring(L, 1), *why = "it is no file that ends in .lua";
    size_t size, length = strlen(name);
    const char *text = NULL;
    if (source_leads_out(name, length)) {
        why = "its path leads out of the templates folder";
    } else if (length > 4 && strcmp(name + length - 4, ".lua") == 0) {
        text = file_read(&session->arena,
                         arena_printf(&session->arena, "%s/%s", session->templates, name), &size);
        why = text == NULL ? strerror(errno) : NULL;
    }
    if (text != NULL) {
        lua_pushlstring(L, text, size);
        return 1;
    }
    lua_pushnil(L);
    lua_pushfstring(L, "include(\"%s\"): %s; allowed: a Lua file below the templates folder", name,
                    why);
    return 2;
}

/* The line of a function in the file `path`; "file:line" where it is in another. */
static int core_line_of(lua_State *L)
{
    lua_Debug ar;
    lua_pushvalue(L, 1);
    lua_getinfo(L, ">S", &ar);
    int line = ar.linedefined > 0 ? ar.linedefined : 1;
    if (ar.source[0] != '@' || strcmp(ar.source + 1, luaL_checkstring(L, 2)) == 0)
        lua_pushinteger(L, line);
    else
        lua_pushfstring(L, "%s:%d", ar.source + 1, line);
    return 1;
}

static int core_fail(lua_State *L)
{
    fail_lua(L, luaL_checkstring(L, 1));
}

static int core_glob(lua_State *L)
{
    lua_pushboolean(L, glob_match(luaL_checkstring(L, 1), luaL_checkstring(L, 2)));
    return 1;
}

/* ("x"):rep(3) must not lead out of the sandbox. */
static int core_string_methods(lua_State *L)
{
    lua_pushliteral(L, "");
    lua_getmetatable(L, -1);
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    return 0;
}

static void open_libraries(lua_State *L)
{
    static const luaL_Reg libraries[] = {{LUA_GNAME, luaopen_base},
                                         {LUA_STRLIBNAME, luaopen_string},
                                         {LUA_TABLIBNAME, luaopen_table},
                                         {LUA_MATHLIBNAME, luaopen_math}};
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
        lua_pop(L, 1);
    }
}

/* Pushes spec.<name>. */
static void push_function(struct session *session, const char *name)
{
    lua_rawgeti(session->L, LUA_REGISTRYINDEX, session->spec);
    lua_getfield(session->L, -1, name);
    lua_remove(session->L, -2);
}

static void set_integer(lua_State *L, const char *name, int value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
}

static void set_boolean(lua_State *L, const char *name, bool value)
{
    lua_pushboolean(L, value);
    lua_setfield(L, -2, name);
}

static int make_arch(struct session *session, const struct arch *arch)
{
    static const char *const kinds[] = {"exact", "major", "ptx"};
    lua_State *L = session->L;
    push_function(session, "arch");
    lua_newtable(L);
    lua_pushstring(L, arch->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, arch->tag);
    lua_setfield(L, -2, "tag");
    lua_pushstring(L, kinds[arch->kind]);
    lua_setfield(L, -2, "kind");
    set_integer(L, "cc", arch->cc);
    set_integer(L, "shared_per_block", arch->shared_per_block);
    set_integer(L, "shared_per_sm", arch->shared_per_sm);
    set_integer(L, "registers_per_sm", arch->registers_per_sm);
    set_integer(L, "max_threads_per_sm", arch->max_threads_per_sm);
    set_boolean(L, "cp_async", arch->cp_async);
    set_boolean(L, "bulk_copy", arch->bulk_copy);
    set_boolean(L, "cluster", arch->cluster);
    set_boolean(L, "wgmma", arch->wgmma);
    set_boolean(L, "tcgen05", arch->tcgen05);
    set_boolean(L, "fp8", arch->fp8);
    lua_call(L, 1, 1);
    return luaL_ref(L, LUA_REGISTRYINDEX);
}

/* The names of these chunks tell the program's mistakes from the user's. */
static void load_own(lua_State *L, const unsigned char *text, size_t size, const char *chunk)
{
    if (luaL_loadbufferx(L, (const char *)text, size, chunk, "t") != LUA_OK)
        lua_error(L);
}

void spec_open(struct session *session)
{
    static const luaL_Reg core[] = {
        {"load", core_load},       {"read", core_read}, {"line_of", core_line_of},
        {"fail", core_fail},       {"glob", core_glob}, {"string_methods", core_string_methods},
        {"guard", watchdog_guard}, {NULL, NULL}};
    lua_State *L = session->L;
    *(struct session **)lua_getextraspace(L) = session;
    watchdog_open(session);
    open_libraries(L);
    load_own(L, spec_lua, spec_lua_size, "=(spec)");
    luaL_newlib(L, core);
    set_integer(L, "max_facts", GEN_PACK_MAX_FACTS);
    set_integer(L, "max_coords", GEN_PACK_MAX_COORDS);
    load_own(L, sandbox_lua, sandbox_lua_size, "=(sandbox)");
    lua_pushvalue(L, -2);
    lua_call(L, 1, 1);
    load_own(L, family_lua, family_lua_size, "=(family)");
    lua_pushvalue(L, -3);
    lua_pushvalue(L, -3);
    lua_call(L, 2, 1);
    lua_call(L, 3, 1);
    session->spec = luaL_ref(L, LUA_REGISTRYINDEX);
    for (size_t i = 0; i < num_archs; i++)
        session->arch_specs[i] = make_arch(session, &archs[i]);
    /* Legality makes many short-lived tables. */
    lua_gc(L, LUA_GCGEN, 0, 0);
}

/* ---- families ----------------------------------------------------------------- */

static const char *get_string(struct session *session, int index, const char *field)
{
    lua_getfield(session->L, index, field);
    const char *text = arena_string(&session->arena, luaL_checkstring(session->L, -1));
    lua_pop(session->L, 1);
    return text;
}

static int get_integer(lua_State *L, int index, const char *field)
{
    lua_getfield(L, index, field);
    int value = (int)luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    return value;
}

static const char *spec_context(struct session *session)
{
    push_function(session, "context");
    lua_call(session->L, 0, 1);
    const char *text = arena_string(&session->arena, luaL_checkstring(session->L, -1));
    lua_pop(session->L, 1);
    return text;
}

static void describe_family(struct session *session, struct family *family)
{
    lua_State *L = session->L;
    push_function(session, "describe");
    lua_rawgeti(L, LUA_REGISTRYINDEX, family->spec);
    lua_call(L, 1, 1);
    family->required = get_string(session, -1, "required");
    family->facts = get_string(session, -1, "facts");
    family->coords = get_string(session, -1, "coords");
    family->num_required = (size_t)get_integer(L, -1, "num_required");
    family->num_facts = (size_t)get_integer(L, -1, "num_facts");
    lua_getfield(L, -1, "combinations");
    family->combinations = (uint64_t)luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    lua_getfield(L, -1, "axes");
    family->num_axes = (size_t)luaL_len(L, -1);
    const char **axes = arena_alloc(&session->arena, (family->num_axes + 1) * sizeof *axes);
    for (size_t i = 0; i < family->num_axes; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        axes[i] = arena_string(&session->arena, luaL_checkstring(L, -1));
        lua_pop(L, 1);
    }
    family->axes = axes;
    lua_pop(L, 2);
}

static void load_family(struct session *session, struct family *family, const char *name)
{
    lua_State *L = session->L;
    family->name = name;
    family->path = arena_printf(&session->arena, "%s/family.lua", name);
    const char *path = arena_printf(&session->arena, "%s/%s", session->templates, family->path);
    size_t size;
    const char *source = file_read(&session->arena, path, &size);
    if (source == NULL)
        fail(session, "%s: cannot read it: %s", path, strerror(errno));
    push_function(session, "load_family");
    lua_pushstring(L, name);
    lua_pushlstring(L, source, size);
    lua_pushstring(L, family->path);
    call_user(session, 3, 1, family->path, 50000000, NULL);
    family->spec = luaL_ref(L, LUA_REGISTRYINDEX);
    describe_family(session, family);
}

static const char *join(struct session *session, char *const *names, size_t count)
{
    const char *text = "";
    for (size_t i = 0; i < count; i++)
        text = arena_printf(&session->arena, "%s%s%s", text, i > 0 ? ", " : "", names[i]);
    return text;
}

void spec_load_families(struct session *session, const char *const *names, size_t count)
{
    struct arena *arena = &session->arena;
    size_t num_entries, num_known = 0;
    char **entries = file_list(arena, session->templates, &num_entries);
    if (entries == NULL)
        fail(session, "%s: cannot read the templates folder: %s", session->templates,
             strerror(errno));
    char **known = arena_alloc(arena, (num_entries + 1) * sizeof *known);
    for (size_t i = 0; i < num_entries; i++)
        if (file_exists(arena_printf(arena, "%s/%s/family.lua", session->templates, entries[i])))
            known[num_known++] = entries[i];
    if (num_known == 0)
        fail(session, "%s: no family in it; a family is a folder with a family.lua",
             session->templates);
    for (size_t i = 0; i < count; i++) {
        size_t j = 0;
        while (j < num_known && strcmp(names[i], known[j]) != 0)
            j++;
        if (j == num_known)
            fail(session, "--families: there is no family '%s' in %s; allowed: %s", names[i],
                 session->templates, join(session, known, num_known));
    }
    session->families = arena_alloc(arena, num_known * sizeof *session->families);
    for (size_t i = 0; i < num_known; i++) {
        bool wanted = count == 0;
        for (size_t j = 0; j < count; j++)
            wanted = wanted || strcmp(names[j], known[i]) == 0;
        if (wanted)
            load_family(session, &session->families[session->num_families++], known[i]);
    }
}

/* ---- variants ----------------------------------------------------------------- */

static bool get_boolean(lua_State *L, int index, const char *field)
{
    lua_getfield(L, index, field);
    bool value = lua_toboolean(L, -1) != 0;
    lua_pop(L, 1);
    return value;
}

/* Of the Lua table on the stack's top, which it pops. */
static struct variant *read_variant(struct session *session, const struct family *family,
                                    const struct arch *arch)
{
    lua_State *L = session->L;
    struct variant *variant = arena_alloc(&session->arena, sizeof *variant);
    variant->family = family;
    variant->arch = arch;
    variant->name = get_string(session, -1, "name");
    variant->symbol = get_string(session, -1, "symbol");
    variant->group = get_string(session, -1, "group");
    variant->group_values = get_string(session, -1, "group_values");
    variant->required = get_string(session, -1, "required");
    variant->free = get_string(session, -1, "free");
    variant->threads = get_integer(L, -1, "threads");
    variant->shared = get_integer(L, -1, "shared");
    variant->cluster = get_integer(L, -1, "cluster");
    variant->max_registers = get_integer(L, -1, "max_registers");
    variant->fallback = get_boolean(L, -1, "fallback");
    variant->trial = get_boolean(L, -1, "trial");
    lua_getfield(L, -1, "facts");
    for (size_t i = 0; i < family->num_facts; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        variant->facts[i] = (int32_t)lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    variant->template = source_template(session, get_string(session, -1, "template"), family);
    variant->spec = luaL_ref(L, LUA_REGISTRYINDEX);
    return variant;
}

static void enumerate(struct session *session, const struct family *family, const struct arch *arch)
{
    lua_State *L = session->L;
    push_function(session, "enumerate");
    lua_rawgeti(L, LUA_REGISTRYINDEX, family->spec);
    lua_rawgeti(L, LUA_REGISTRYINDEX, session->arch_specs[arch - archs]);
    /* Generous: a combination takes some hundred instructions. */
    call_user(session, 2, 2, family->path, 50000000 + 10000 * family->combinations, spec_context);
    size_t num_unserved = (size_t)luaL_len(L, -1);
    session->unserved =
        arena_grow(&session->arena, session->unserved, session->num_unserved,
                   session->num_unserved + num_unserved + 1, sizeof *session->unserved);
    for (size_t i = 0; i < num_unserved; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        session->unserved[session->num_unserved++] =
            (struct unserved){.family = family,
                              .arch = arch,
                              .group = get_string(session, -1, "group"),
                              .reason = get_string(session, -1, "reason")};
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    size_t count = (size_t)luaL_len(L, -1);
    session->variants = arena_grow(&session->arena, session->variants, session->num_variants,
                                   session->num_variants + count + 1, sizeof *session->variants);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        session->variants[session->num_variants++] = read_variant(session, family, arch);
    }
    lua_pop(L, 1);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct variant *const *)a)->name, (*(struct variant *const *)b)->name);
}

static void check_names(struct session *session)
{
    for (size_t i = 0; i < session->num_variants; i++) {
        const struct variant *a = session->variants[i];
        if (strlen(a->symbol) > 250)
            fail(session, "%s: the name %s has %zu characters; allowed: 250", a->family->path,
                 a->symbol, strlen(a->symbol));
        if (i == 0)
            continue;
        const struct variant *b = session->variants[i - 1];
        if (strcmp(a->name, b->name) == 0)
            fail(session,
                 "%s: two variants spell the name %s: %s;%s and %s;%s; a tag can tell them apart",
                 a->family->path, a->name, b->required, b->free, a->required, a->free);
    }
}

void spec_enumerate(struct session *session)
{
    for (size_t f = 0; f < session->num_families; f++)
        for (size_t t = 0; t < session->num_targets; t++)
            enumerate(session, &session->families[f], session->targets[t]);
    if (session->num_variants > 0)
        qsort(session->variants, session->num_variants, sizeof *session->variants, by_name);
    check_names(session);
    default_space_mark(session);
}

/* ---- questions ---------------------------------------------------------------- */

/* Pushes the filter; false, with the message pushed, where it makes no sense. */
static bool push_filter(struct session *session, const struct family *family, const char *glob,
                        const struct condition *conditions, size_t num_conditions)
{
    lua_State *L = session->L;
    if (glob != NULL) {
        push_function(session, "name_filter");
        lua_pushstring(L, glob);
        lua_call(L, 1, 1);
        return true;
    }
    push_function(session, "axis_filter");
    lua_rawgeti(L, LUA_REGISTRYINDEX, family->spec);
    lua_newtable(L);
    for (size_t i = 0; i < num_conditions; i++) {
        lua_newtable(L);
        lua_pushstring(L, conditions[i].axis);
        lua_setfield(L, -2, "axis");
        lua_pushstring(L, conditions[i].value);
        lua_setfield(L, -2, "value");
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_call(L, 2, 2);
    if (lua_isnil(L, -2))
        return false;
    lua_pop(L, 1);
    return true;
}

bool spec_why(struct session *session, const struct family *family, const struct arch *arch,
              const char *glob, const struct condition *conditions, size_t num_conditions,
              struct why_answer *answer, const char **message)
{
    lua_State *L = session->L;
    push_function(session, "why");
    lua_rawgeti(L, LUA_REGISTRYINDEX, family->spec);
    lua_rawgeti(L, LUA_REGISTRYINDEX, session->arch_specs[arch - archs]);
    if (!push_filter(session, family, glob, conditions, num_conditions)) {
        *message = arena_string(&session->arena, luaL_checkstring(L, -1));
        lua_pop(L, 5);
        return false;
    }
    call_user(session, 3, 3, family->path, 50000000 + 20000 * family->combinations, spec_context);
    *answer = (struct why_answer){.total = (size_t)lua_tointeger(L, -2),
                                  .num_legal = (size_t)luaL_len(L, -3),
                                  .num_reasons = (size_t)luaL_len(L, -1)};
    answer->legal = arena_alloc(&session->arena, (answer->num_legal + 1) * sizeof *answer->legal);
    for (size_t i = 0; i < answer->num_legal; i++) {
        lua_rawgeti(L, -3, (lua_Integer)i + 1);
        answer->legal[i] = arena_string(&session->arena, lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    answer->reasons =
        arena_alloc(&session->arena, (answer->num_reasons + 1) * sizeof *answer->reasons);
    for (size_t i = 0; i < answer->num_reasons; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        answer->reasons[i].reason = get_string(session, -1, "reason");
        answer->reasons[i].count = (size_t)get_integer(L, -1, "count");
        lua_pop(L, 1);
    }
    lua_pop(L, 3);
    return true;
}

void spec_push_environment(struct session *session, const struct variant *variant)
{
    push_function(session, "template_environment");
    lua_rawgeti(session->L, LUA_REGISTRYINDEX, variant->spec);
    call_user(session, 1, 1, variant->family->path, 50000000, spec_context);
}
