/* What every cmocka program here includes, in the order cmocka.h wants. */
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The last message holds this piece. */
#define assert_message(piece)                                             \
    do {                                                                  \
        if (!strstr(gen_last_error(), piece))                             \
            fail_msg("\"%s\" is not in \"%s\"", piece, gen_last_error()); \
    } while (0)

#define assert_status(call, status)                                            \
    do {                                                                       \
        const enum gen_status got = (call);                                    \
        if (got != (status))                                                   \
            fail_msg("%s is %s, expected %s: %s", #call, gen_status_name(got), \
                     gen_status_name(status), gen_last_error());               \
    } while (0)

#endif /* TEST_H */
