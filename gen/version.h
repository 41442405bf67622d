#ifndef VERSION_H
#define VERSION_H

/* The build sets it from the project's version. */
#ifndef ATTNGEN_VERSION
#define ATTNGEN_VERSION "0.2.0"
#endif

#endif /* VERSION_H */
