#include "util/glob.h"

#include <stddef.h>

bool glob_match(const char *pattern, const char *name)
{
    const char *star = NULL, *retry = NULL; /* after the last `*`: where to go on */
    while (*name != '\0') {
        if (*pattern == '*') {
            star = ++pattern;
            retry = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}
