# What a program that reads other people's bytes should be built with: stack
# protectors, libc's checked calls (where the compiler optimizes, which they
# need), addresses drawn at random, and a table of library functions that is
# complete and read-only before the program begins.
option(ATTNGEN_HARDENING
       "Build with stack protectors, FORTIFY_SOURCE, full RELRO and immediate binding, as PIE" ON)
if(ATTNGEN_HARDENING)
    include(CheckPIESupported)
    check_pie_supported(LANGUAGES C)
    set(CMAKE_POSITION_INDEPENDENT_CODE ON)
    add_compile_options(-fstack-protector-strong)
    # Distributions' compilers define it themselves, often to less.
    set(optimized $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)
    add_compile_options($<${optimized}:-U_FORTIFY_SOURCE> $<${optimized}:-D_FORTIFY_SOURCE=3>)
    add_link_options(LINKER:-z,relro LINKER:-z,now)
endif()
