/* Ranges for profilers (NVTX), one a kernel launch; of a build without -DATTNGEN_NVTX=ON nothing.
 */
#ifndef GEN_RANGES_H
#define GEN_RANGES_H

#if defined(ATTNGEN_NVTX)
/* "<family> <variant>": of the plan, of the launch. In the domain "attngen". */
void gen__range_begin(const char *family, const char *variant);
void gen__range_end(void);
#else
#define gen__range_begin(family, variant) ((void)0)
#define gen__range_end() ((void)0)
#endif

#endif /* GEN_RANGES_H */
