/* What NVTX_INJECTION64_PATH names: a profiler that keeps domains and ranges as text. */
#include <nvtx3/nvToolsExt.h>

#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern char fake_nvtx_log[4096];
char fake_nvtx_log[4096];

static void note(const char *what, const char *text)
{
    const size_t length = strlen(fake_nvtx_log);
    snprintf(fake_nvtx_log + length, sizeof fake_nvtx_log - length, "%s%s;", what, text);
}

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
    static char domain;
    note("domain ", name);
    return (nvtxDomainHandle_t)(void *)&domain;
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
    note(domain ? "push " : "push without a domain ", event->message.ascii);
    return 0;
}

static int NVTX_API pop(nvtxDomainHandle_t domain)
{
    note(domain ? "pop" : "pop without a domain", "");
    return 0;
}

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks =
        (const NvtxExportTableCallbacks *)get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned size;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
