/* CUDA's runtime, driver and cuBLAS on a machine without a GPU. They allocate up to NULL_MB, copy, and refuse what may
   not happen in a capture; no kernel runs. What isn't here does nothing and returns success: see test_null_gpu.py. */
#include <dlfcn.h>
#include <driver_types.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, REGISTERS = 65536, SHARED = 49152, SHARED_BY_CHOICE = 232448 };
static __thread int last, mode;
static int capturing, captures, invalid;
static size_t used, handles = 1 << 20;
static size_t number(char *variable, size_t otherwise) { return getenv(variable) ? atol(getenv(variable)) : otherwise; }
static size_t memory(void) { return number("NULL_MB", 81920) << 20; }
static int nothing(void) { return 0; }
#define FAIL(error) return last = error
#define REFUSED (invalid = 1, cudaErrorStreamCaptureUnsupported)
#define ALONE if (capturing && mode != cudaStreamCaptureModeRelaxed) FAIL(REFUSED)
#define GIVES(name, type, value, ...) int name(type *result, ##__VA_ARGS__) { *result = (type)(value); return 0; }
#define WAITS(name) int name(void) { ALONE; return 0; }
#define TEXT(name) const char *name(int error) { return error == cudaErrorMemoryAllocation ? "out of memory" : "null"; }

TEXT(cudaGetErrorString) TEXT(cudaGetErrorName)
WAITS(cudaStreamSynchronize) WAITS(cudaDeviceSynchronize) WAITS(cudaEventSynchronize)
GIVES(cudaGetDeviceCount, int, 1) GIVES(cudaGetDevice, int, 0) GIVES(cudaDriverGetVersion, int, CUDART_VERSION)
GIVES(cudaRuntimeGetVersion, int, CUDART_VERSION) GIVES(cudaOccupancyMaxActiveBlocksPerMultiprocessor, int, 8)
GIVES(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int, 8) GIVES(cublasCreate_v2, long, handles += 16)
GIVES(cudaStreamCreateWithPriority, long, handles += 16) GIVES(cudaEventCreateWithFlags, long, handles += 16)
GIVES(cuDeviceGetCount, int, 1) GIVES(cuDeviceGet, int, 0) GIVES(cuCtxGetCurrent, long, 16) GIVES(cuCtxGetDevice, int, 0)
GIVES(cuModuleLoadData, long, handles += 16) GIVES(cuModuleGetFunction, long, handles += 16)
GIVES(cuFuncGetAttribute, int, attribute ? 0 : 1024, int attribute)
GIVES(cuPointerGetAttribute, long, pointer, int attribute, long pointer)

int cudaGetLastError(void) { int error = last; last = 0; return error; }
int cudaMemGetInfo(size_t *available, size_t *total) { *total = memory(); *available = *total - used; return 0; }
int cudaMalloc(void **result, size_t size) {
    size_t whole = (size + 2 * PAGE - 1) / PAGE * PAGE; /* its first page is for the size */
    if (used + whole > memory()) FAIL(cudaErrorMemoryAllocation);
    size_t *block = mmap(0, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    used += *block = whole;
    *result = (char *)block + PAGE;
    return 0;
}
int cudaFree(char *pointer) {
    ALONE;
    if (!pointer) return 0;
    size_t *block = (size_t *)(pointer - PAGE);
    used -= *block;
    return munmap(block, *block);
}
int cudaHostAlloc(void **result, size_t size) { return posix_memalign(result, 512, size); }
int cudaFreeHost(void *pointer) { free(pointer); return 0; }
int cudaMemcpyAsync(void *to, void *from, size_t size, int kind, void *stream) {
    if (kind != cudaMemcpyDeviceToDevice) ALONE; /* torch's are of pageable memory */
    memmove(to, from, size);
    return 0;
}
int cudaMemsetAsync(void *at, int value, size_t size, void *stream) { memset(at, value, size); return 0; }
int cudaDeviceGetAttribute(int *result, int attribute, int device) {
    *result = attribute == cudaDevAttrComputeCapabilityMajor ? number("NULL_MAJOR", 9) :
        attribute == cudaDevAttrComputeCapabilityMinor ? 0 : attribute == cudaDevAttrWarpSize ? 32 :
        attribute == cudaDevAttrMultiProcessorCount ? 132 : attribute == cudaDevAttrMaxThreadsPerBlock ? 1024 :
        attribute == cudaDevAttrMaxThreadsPerMultiProcessor ? 2048 : attribute == cudaDevAttrMaxGridDimX ? 2147483647 :
        attribute == cudaDevAttrMaxSharedMemoryPerBlock ? SHARED : attribute == cudaDevAttrMaxRegistersPerBlock ?
        REGISTERS : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? SHARED_BY_CHOICE : 1;
    return 0;
}
int cuDeviceGetAttribute(int *result, int attribute, int device) { return cudaDeviceGetAttribute(result, attribute, 0); }
GIVES(cudaFuncGetAttributes, struct cudaFuncAttributes,
      ((struct cudaFuncAttributes){.maxThreadsPerBlock = 1024, .binaryVersion = 90, .ptxVersion = 90}))
GIVES(cudaGetDeviceProperties, struct cudaDeviceProp, ((struct cudaDeviceProp){
    .name = "null GPU", .totalGlobalMem = memory(), .major = number("NULL_MAJOR", 9), .multiProcessorCount = 132,
    .warpSize = 32, .maxThreadsPerBlock = 1024, .maxThreadsPerMultiProcessor = 2048, .maxThreadsDim = {1024, 1024, 64},
    .maxGridSize = {2147483647, 65535, 65535}, .sharedMemPerBlock = SHARED, .regsPerBlock = REGISTERS}))
int cudaStreamBeginCapture(void *stream, int kind) { captures++; capturing = 1; invalid = 0; return 0; }
int cudaStreamEndCapture(void *stream, long *graph) {
    capturing = 0;
    *graph = invalid ? 0 : (handles += 16);
    if (invalid) FAIL(cudaErrorStreamCaptureInvalidated);
    return 0;
}
int cudaThreadExchangeStreamCaptureMode(int *other) { int before = mode; mode = *other; *other = before; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; return !(*active = 1); }
int cudaStreamIsCapturing(void *stream, int *status) { *status = capturing; return 0; }
int cudaStreamGetCaptureInfo(void *stream, int *status, long *number, long *graph) {
    if (number) *number = captures;
    if (graph) *graph = 16;
    return cudaStreamIsCapturing(stream, status);
}
int cudaGraphGetNodes(void *graph, void *nodes, size_t *count) { *count = 1; return 0; }
int cudaGetDriverEntryPointByVersion(char *name, void **result) { *result = nothing; return 0; }
int cuGetProcAddress_v2(char *name, void **result) {
    void *own = dlsym(RTLD_DEFAULT, name);
    *result = own ? own : nothing;
    return 0;
}
