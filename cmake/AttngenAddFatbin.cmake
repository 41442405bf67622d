# attngen_add_fatbin(<target>
#                    [FAMILIES <name>...]    families; default: all
#                    [TARGETS <name>...]     sm_90a sm_80 ... compute_80; default: the generator's
#                    [ONLY <glob>...]        variant names to keep; default: all
#                    [TABLES <file>...]      tuning tables to embed; default: those installed
#                    [WINNERS]               keep as little as keeps the tables' times, and every fallback
#                    [MAX_REGRET <r>]        of WINNERS: how much slower a kept variant may be; default: 0.01
#                    [ALLOW_REFUSED <n>]     variants that the toolkit may refuse though the catalog has them; default: 0
#                    [OUTPUT <file>]         default: <target>.fatbin in the binary folder
#                    [FULL]                  also variants that no tuning table picks
#                    [EXCLUDE_FROM_ALL])
#
# Adds a target that runs the generator and makes one product file. It runs
# again when the generator, a template or a table changes. Needs no GPU. The
# file's absolute path is the target's property ATTNGEN_FATBIN. Compiled variants
# are cached where the generator keeps them, or in the build folder where there
# is no home to keep them in.
#
# Reads attngen_TEMPLATES_DIR and attngen_TUNING_DIR.
function(attngen_add_fatbin name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "EXCLUDE_FROM_ALL;FULL;WINNERS" "OUTPUT;MAX_REGRET;ALLOW_REFUSED"
                          "FAMILIES;TARGETS;ONLY;TABLES")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "attngen_add_fatbin(${name}): '${arg_UNPARSED_ARGUMENTS}' is no "
                            "argument; allowed: FAMILIES TARGETS ONLY TABLES WINNERS MAX_REGRET ALLOW_REFUSED OUTPUT FULL EXCLUDE_FROM_ALL")
    endif()
    if(arg_KEYWORDS_MISSING_VALUES)
        message(FATAL_ERROR "attngen_add_fatbin(${name}): no value for ${arg_KEYWORDS_MISSING_VALUES}")
    endif()
    if(NOT TARGET attngen::generator)
        message(FATAL_ERROR "attngen_add_fatbin(${name}): this attngen was built without its "
                            "generator (ATTNGEN_GENERATOR=OFF)")
    endif()
    # An empty folder would make the globs below walk the whole file system.
    foreach(folder attngen_TEMPLATES_DIR attngen_TUNING_DIR)
        if(NOT IS_DIRECTORY "${${folder}}")
            message(FATAL_ERROR "attngen_add_fatbin(${name}): ${folder} is '${${folder}}', which is no folder; "
                                "find_package(attngen) and add_subdirectory() set it")
        endif()
    endforeach()

    if(NOT arg_OUTPUT)
        set(arg_OUTPUT ${name}.fatbin)
    endif()
    get_filename_component(output "${arg_OUTPUT}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")

    set(tables)
    if(arg_TABLES)
        foreach(table IN LISTS arg_TABLES)
            get_filename_component(table "${table}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
            list(APPEND tables "${table}")
        endforeach()
    else()
        file(GLOB tables CONFIGURE_DEPENDS "${attngen_TUNING_DIR}/*.tsv")
    endif()
    file(GLOB_RECURSE templates CONFIGURE_DEPENDS
         "${attngen_TEMPLATES_DIR}/*.lua" "${attngen_TEMPLATES_DIR}/*.in"
         "${attngen_TEMPLATES_DIR}/*.cuh" "${attngen_TEMPLATES_DIR}/*.h"
         "${attngen_TEMPLATES_DIR}/*.txt")

    set(options --templates "${attngen_TEMPLATES_DIR}" --output "${output}")
    if(arg_FAMILIES)
        list(JOIN arg_FAMILIES "," list)
        list(APPEND options --families "${list}")
    endif()
    if(arg_TARGETS)
        list(JOIN arg_TARGETS "," list)
        list(APPEND options --targets "${list}")
    endif()
    if(arg_FULL)
        list(APPEND options --full)
    endif()
    foreach(glob IN LISTS arg_ONLY)
        list(APPEND options --only "${glob}")
    endforeach()
    foreach(table IN LISTS tables)
        list(APPEND options --table "${table}")
        if(arg_WINNERS)
            list(APPEND options --winners "${table}")
        endif()
    endforeach()
    if(DEFINED arg_ALLOW_REFUSED)
        list(APPEND options --allow-refused "${arg_ALLOW_REFUSED}")
    endif()
    if(DEFINED arg_MAX_REGRET)
        list(APPEND options --max-regret "${arg_MAX_REGRET}")
    endif()
    if(NOT DEFINED ENV{ATTNGEN_CACHE} AND NOT IS_DIRECTORY "$ENV{HOME}")
        list(APPEND options --cache "${CMAKE_BINARY_DIR}/attngen-cache")
    endif()
    if(ATTNGEN_JOBS)
        list(APPEND options --jobs "${ATTNGEN_JOBS}")
    endif()

    add_custom_command(
        OUTPUT "${output}"
        COMMAND attngen::generator build ${options}
        DEPENDS attngen::generator ${templates} ${tables}
        COMMENT "Generating ${arg_OUTPUT}"
        USES_TERMINAL VERBATIM)
    if(arg_EXCLUDE_FROM_ALL)
        add_custom_target(${name} DEPENDS "${output}")
    else()
        add_custom_target(${name} ALL DEPENDS "${output}")
    endif()
    set_property(TARGET ${name} PROPERTY ATTNGEN_FATBIN "${output}")
endfunction()
