# Writes the bytes of INPUT as the C array NAME and its size NAME_size to OUTPUT.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
get_filename_component(from ${INPUT} NAME)
file(WRITE ${OUTPUT}
"/* Made from ${from} by embed.cmake: do not edit. */
#include <stddef.h>

extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_size;
const unsigned char ${NAME}[] = {
    ${bytes}
};
const size_t ${NAME}_size = sizeof ${NAME};
")
