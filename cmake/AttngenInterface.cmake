# What a project sees that adds this one by add_subdirectory() or FetchContent: the same names as
# find_package(attngen CONFIG) gives, with attngen_TEMPLATES_DIR and attngen_TUNING_DIR as cache
# variables, because a subdirectory's ordinary ones end with it.
add_library(attngen::attngen ALIAS attngen_shared)
add_library(attngen::attngen_static ALIAS attngen_static)
if(TARGET attngen_generator)
    add_executable(attngen::generator ALIAS attngen_generator)
endif()
set(attngen_TEMPLATES_DIR ${PROJECT_SOURCE_DIR}/templates CACHE INTERNAL "What the generator reads")
set(attngen_TUNING_DIR ${PROJECT_SOURCE_DIR}/generated/tuning CACHE INTERNAL "What the generator reads")
include(AttngenAddFatbin)
