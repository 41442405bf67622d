# The install tree: programs, libraries, headers, templates, tables, the
# product, and what CMake, pkg-config and man look for.
include(CMakePackageConfigHelpers)

set(ATTNGEN_INSTALL_CMAKEDIR ${CMAKE_INSTALL_LIBDIR}/cmake/attngen)
set(ATTNGEN_INSTALL_DATADIR ${CMAKE_INSTALL_DATADIR}/attngen)

# Components are what AttngenPackages.cmake makes a Debian package of each.
set_target_properties(attngen_static PROPERTIES EXPORT_NAME attngen_static)
set_target_properties(attngen_shared PROPERTIES EXPORT_NAME attngen)
foreach(library attngen_static attngen_shared)
    target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
install(TARGETS attngen_static attngen_shared EXPORT attngenTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT attngenTargets NAMESPACE attngen:: DESTINATION ${ATTNGEN_INSTALL_CMAKEDIR} COMPONENT development)
if(TARGET attngen)
    install(TARGETS attngen RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
    install(FILES docs/attngen.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT manual)
endif()
if(TARGET attngen_generator)
    # An export of its own: who has the library alone has no program to name.
    set_target_properties(attngen_generator PROPERTIES EXPORT_NAME generator)
    install(TARGETS attngen_generator EXPORT attngenGenerator
            RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/attngen COMPONENT tools)
    # The search path is the build tree's alone (gen/CMakeLists.txt gives it).
    install(CODE "file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBEXECDIR}/attngen/attngen-generator\")"
            COMPONENT tools)
    install(EXPORT attngenGenerator NAMESPACE attngen:: DESTINATION ${ATTNGEN_INSTALL_CMAKEDIR} COMPONENT tools)
endif()

# Sub-programs are what bench/ builds under the name attngen-*.
if(ATTNGEN_BENCH AND EXISTS ${PROJECT_SOURCE_DIR}/bench/CMakeLists.txt)
    get_property(bench_targets DIRECTORY ${PROJECT_SOURCE_DIR}/bench PROPERTY BUILDSYSTEM_TARGETS)
    list(FILTER bench_targets INCLUDE REGEX "^attngen-")
    if(bench_targets)
        install(TARGETS ${bench_targets} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/attngen
                COMPONENT tools)
    endif()
endif()

install(DIRECTORY ${ATTNGEN_INCLUDE_DIR}/attngen DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h")
if(TARGET attngen_generator)
    install(DIRECTORY templates DESTINATION ${ATTNGEN_INSTALL_DATADIR} COMPONENT tools
            FILES_MATCHING PATTERN "*.lua" PATTERN "*.in" PATTERN "*.cuh" PATTERN "*.h"
                          PATTERN "*.txt")
    install(DIRECTORY generated/tuning DESTINATION ${ATTNGEN_INSTALL_DATADIR} COMPONENT tools
            FILES_MATCHING PATTERN "*.tsv")
    install(FILES generated/catalog.tsv DESTINATION ${ATTNGEN_INSTALL_DATADIR} COMPONENT tools)
endif()
if(ATTNGEN_PREBUILT)
    install(FILES ${ATTNGEN_PREBUILT} DESTINATION ${CMAKE_INSTALL_LIBDIR}/attngen RENAME attngen.fatbin
            COMPONENT kernels)
elseif(TARGET product AND ATTNGEN_PRODUCT)
    install(FILES ${ATTNGEN_PRODUCT_FILE} DESTINATION ${CMAKE_INSTALL_LIBDIR}/attngen COMPONENT kernels)
endif()

configure_package_config_file(
    cmake/attngenConfig.cmake.in ${PROJECT_BINARY_DIR}/cmake/attngenConfig.cmake
    INSTALL_DESTINATION ${ATTNGEN_INSTALL_CMAKEDIR}
    PATH_VARS ATTNGEN_INSTALL_DATADIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/cmake/attngenConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/attngenConfig.cmake
              ${PROJECT_BINARY_DIR}/cmake/attngenConfigVersion.cmake
              cmake/AttngenAddFatbin.cmake
        DESTINATION ${ATTNGEN_INSTALL_CMAKEDIR} COMPONENT development)

# pkg-config: the prefix follows the .pc file, so that the tree can be moved.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    set(PC_PREFIX ${CMAKE_INSTALL_PREFIX})
    set(PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
else()
    file(RELATIVE_PATH pc_up /prefix/${pc_dir} /prefix)
    string(REGEX REPLACE "/$" "" pc_up ${pc_up})
    set(PC_PREFIX "\${pcfiledir}/${pc_up}")
    set(PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
foreach(dir INCLUDEDIR DATADIR BINDIR)
    if(IS_ABSOLUTE ${CMAKE_INSTALL_${dir}})
        set(PC_${dir} ${CMAKE_INSTALL_${dir}})
    else()
        set(PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
    endif()
endforeach()
configure_file(cmake/attngen.pc.in ${PROJECT_BINARY_DIR}/cmake/attngen.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/attngen.pc DESTINATION ${pc_dir} COMPONENT development)

include(AttngenPackages)
