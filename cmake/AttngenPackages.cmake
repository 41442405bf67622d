# Debian packages: `cpack -G DEB` in a build folder configured with -DCMAKE_INSTALL_PREFIX=/usr.
#   libattngen0                 the runtime
#   libattngen-dev              headers, the static library, what CMake and pkg-config look for
#   attngen                     the generator and the sub-programs, templates, tables, the manual page
#   attngen-kernels-<targets>   the product, as a file of its own: libattngen opens those of all packages as one
set(library_package libattngen${PROJECT_VERSION_MAJOR})
if(ATTNGEN_TARGETS)
    string(TOLOWER "${ATTNGEN_TARGETS}" kernels_suffix)
    string(REGEX REPLACE "[^a-z0-9]+" "-" kernels_suffix "${kernels_suffix}")
else()
    set(kernels_suffix default)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME attngen)
set(CPACK_PACKAGE_CONTACT "the attngen authors <attngen@localhost.localdomain>" CACHE STRING
    "Who maintains the packages: a name and an address")
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
if(CUDA_nvrtc_LIBRARY)
    # dpkg-shlibdeps must find NVRTC, which no package of Debian's brings, so nothing depends on it.
    get_filename_component(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CUDA_nvrtc_LIBRARY} DIRECTORY)
endif()

set(CPACK_COMPONENTS_ALL library development)
if(TARGET attngen)
    list(APPEND CPACK_COMPONENTS_ALL tools)
endif()
if(ATTNGEN_PREBUILT OR (TARGET product AND ATTNGEN_PRODUCT))
    list(APPEND CPACK_COMPONENTS_ALL packaged_kernels)
endif()

# A synopsis, an empty line and a text are what Debian's description is made of.
# attngen_package(COMPONENT NAME SECTION SYNOPSIS TEXT)
macro(attngen_package component name section synopsis text)
    string(TOUPPER ${component} upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
    set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
    set(CPACK_COMPONENT_${upper}_DESCRIPTION "${synopsis}\n${text}")
    foreach(file copyright changelog.Debian.gz)
        install(FILES ${PROJECT_BINARY_DIR}/packaging/${file} COMPONENT ${component} EXCLUDE_FROM_ALL
                DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name})
    endforeach()
endmacro()
attngen_package(library ${library_package} libs "Ahead-of-time attention kernels: runtime"
    "libattngen opens a product of compiled CUDA kernels, selects the variant\nthat was measured fastest for a problem and launches it.")
attngen_package(development libattngen-dev libdevel "Ahead-of-time attention kernels: headers"
    "Headers, the static library and files for CMake and pkg-config to build\nprograms that use libattngen.")
attngen_package(tools attngen devel "Ahead-of-time attention kernels: generator and tuner"
    "The program attngen expands kernel templates, compiles them with NVRTC and\npacks the product; its sub-programs select, verify, tune and measure.\nThe generator needs NVRTC, of a CUDA toolkit.")
attngen_package(packaged_kernels attngen-kernels-${kernels_suffix} libs "Ahead-of-time attention kernels: ${kernels_suffix}"
    "The product that libattngen opens: compiled CUDA kernels for\n${kernels_suffix}, with tuning tables.")
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS library)
set(CPACK_DEBIAN_PACKAGED_KERNELS_PACKAGE_PROVIDES attngen-kernels)
if(ATTNGEN_PREBUILT)
    set(kernels_file ${ATTNGEN_PREBUILT})
elseif(TARGET product)
    set(kernels_file ${ATTNGEN_PRODUCT_FILE})
endif()
if(kernels_file)
    install(FILES ${kernels_file} RENAME attngen-${kernels_suffix}.fatbin COMPONENT packaged_kernels EXCLUDE_FROM_ALL
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/attngen)
endif()
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS attngen-kernels)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS attngen-kernels)

# Debian's form of the license, and its changelog.
file(READ ${PROJECT_SOURCE_DIR}/LICENSE license)
string(REGEX REPLACE "^MIT License\n\nCopyright [^\n]*\n\n" "" license "${license}")
string(REGEX REPLACE "\n\n" "\n.\n" license "${license}")
string(REGEX REPLACE "\n$" "" license "${license}")
string(REPLACE "\n" "\n " license "${license}")
file(STRINGS ${PROJECT_SOURCE_DIR}/LICENSE copyright REGEX "^Copyright ")
string(REGEX REPLACE "^Copyright *(\\(c\\))? *" "" copyright "${copyright}")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/packaging/copyright @ONLY CONTENT
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: attngen

Files: *
Copyright: @copyright@
License: Expat
 @license@
")
string(CONCAT changelog "attngen (${PROJECT_VERSION}-1) unstable; urgency=medium\n\n  * Version ${PROJECT_VERSION}.\n\n"
       " -- ${CPACK_PACKAGE_CONTACT}  Thu, 01 Jan 2026 00:00:00 +0000\n")
file(WRITE ${PROJECT_BINARY_DIR}/packaging/changelog.Debian "${changelog}")
configure_file(${PROJECT_SOURCE_DIR}/docs/attngen.1 ${PROJECT_BINARY_DIR}/packaging/attngen.1 COPYONLY)
execute_process(COMMAND gzip -9nf changelog.Debian attngen.1 WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/packaging)
install(FILES ${PROJECT_BINARY_DIR}/packaging/attngen.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
        COMPONENT tools EXCLUDE_FROM_ALL)

# What programs linked with the library depend on, and the trigger by which the loader learns of it.
file(WRITE ${PROJECT_BINARY_DIR}/packaging/shlibs
     "libattngen ${PROJECT_VERSION_MAJOR} ${library_package} (>= ${PROJECT_VERSION})\n")
file(WRITE ${PROJECT_BINARY_DIR}/packaging/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA
    ${PROJECT_BINARY_DIR}/packaging/shlibs ${PROJECT_BINARY_DIR}/packaging/triggers)
include(CPack)
