# The targets that the generator makes: `product`, the file that is installed,
# and `regen`, which refreshes what is generated and committed: the catalog of
# all targets, the digests in the tuning tables, and the tables of README.md and
# of the benchmark's report.
set(ATTNGEN_PRODUCT_FILE ${PROJECT_BINARY_DIR}/attngen.fatbin)
set(ATTNGEN_CATALOG ${PROJECT_SOURCE_DIR}/generated/catalog.tsv)

string(REPLACE "," ";" product_targets "${ATTNGEN_TARGETS}")
string(REPLACE "," ";" product_families "${ATTNGEN_FAMILIES}")
set(product_options)
foreach(option families targets)
    if(product_${option})
        string(TOUPPER ${option} keyword)
        list(APPEND product_options ${keyword} ${product_${option}})
    endif()
endforeach()
if(ATTNGEN_FULL)
    list(APPEND product_options FULL)
endif()
if(ATTNGEN_ONLY)
    list(APPEND product_options ONLY ${ATTNGEN_ONLY})
endif()
if(ATTNGEN_ALLOW_REFUSED)
    list(APPEND product_options ALLOW_REFUSED ${ATTNGEN_ALLOW_REFUSED})
endif()
if(ATTNGEN_WINNERS)
    list(APPEND product_options WINNERS MAX_REGRET ${ATTNGEN_MAX_REGRET})
endif()
if(NOT ATTNGEN_PRODUCT OR ATTNGEN_PREBUILT)
    list(APPEND product_options EXCLUDE_FROM_ALL)
endif()
attngen_add_fatbin(product OUTPUT ${ATTNGEN_PRODUCT_FILE} ${product_options})

add_custom_target(regen
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/default_space.py
    COMMAND attngen build --templates ${attngen_TEMPLATES_DIR} --targets all
            --catalog ${ATTNGEN_CATALOG} --refresh
    COMMAND attngen rekey --catalog ${ATTNGEN_CATALOG} --tables ${attngen_TUNING_DIR}
    COMMAND ${PROJECT_SOURCE_DIR}/bench/report.py --no-plots
    COMMENT "Compiling what has changed, for every target: generated/catalog.tsv, the digests of generated/tuning, the documents' tables"
    USES_TERMINAL VERBATIM)
