// The thin part: devices, memory, streams, events and copies.
#include "common.cuh"

// Something to ask the attributes of: without machine code for the device this fails.
__global__ void pc_probe() {}

__global__ void pc_touched_kernel(const uint32_t* memory, size_t words, uint32_t pattern, unsigned long long* last)
{
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t difference = memory[i] ^ pattern;
        if (difference)
            mine = i * 4 + (32 - __clz(difference) + 7) / 8;
    }
    if (mine)
        atomicMax(last, mine);
}

__global__ void pc_break_kernel() { asm volatile("trap;"); }

extern "C" {

int pc_device_count(int* count)
{
    *count = 0;
    PC_TRY(cudaGetDeviceCount(count));
    return 0;
}

int pc_versions(int* driver, int* runtime)
{
    PC_TRY(cudaDriverGetVersion(driver));
    PC_TRY(cudaRuntimeGetVersion(runtime));
    return 0;
}

int pc_properties_of(int device, pc_properties* out)
{
    cudaDeviceProp properties;
    PC_TRY(cudaGetDeviceProperties(&properties, device));
    size_t at = 0;
    for (; at + 1 < sizeof(out->name) && properties.name[at]; at++)
        out->name[at] = properties.name[at];
    out->name[at] = 0;
    out->major = properties.major;
    out->minor = properties.minor;
    out->multiprocessors = properties.multiProcessorCount;
    PC_TRY(cudaDriverGetVersion(&out->driver_version));
    PC_TRY(cudaRuntimeGetVersion(&out->runtime_version));
    PC_TRY(cudaSetDevice(device));
    PC_TRY(cudaMemGetInfo(&out->free_bytes, &out->total_bytes));
    return 0;
}

int pc_select(int device)
{
    PC_TRY(cudaSetDevice(device));
    return 0;
}

int pc_has_kernels()
{
    cudaFuncAttributes attributes;
    PC_TRY(cudaFuncGetAttributes(&attributes, pc_probe));
    return 0;
}

const char* pc_error_name(int code) { return cudaGetErrorName((cudaError_t)code); }
const char* pc_error_text(int code) { return cudaGetErrorString((cudaError_t)code); }

int pc_memory(size_t* free_bytes, size_t* total_bytes)
{
    PC_TRY(cudaMemGetInfo(free_bytes, total_bytes));
    return 0;
}

int pc_alloc(void** d_memory, size_t bytes)
{
    *d_memory = nullptr;
    PC_TRY(cudaMalloc(d_memory, bytes));
    return 0;
}

int pc_free(void* d_memory)
{
    PC_TRY(cudaFree(d_memory));
    return 0;
}

int pc_stream_create(void** stream)
{
    cudaStream_t made;
    PC_TRY(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    *stream = made;
    return 0;
}

int pc_stream_destroy(void* stream)
{
    PC_TRY(cudaStreamDestroy(pc_stream_of(stream)));
    return 0;
}

int pc_stream_synchronise(void* stream)
{
    PC_TRY(cudaStreamSynchronize(pc_stream_of(stream)));
    return 0;
}

int pc_event_create(void** event, int kind)
{
    static const unsigned flags[] = {
        cudaEventDisableTiming, cudaEventDefault, cudaEventDisableTiming | cudaEventBlockingSync};
    cudaEvent_t made;
    PC_TRY(cudaEventCreateWithFlags(&made, flags[kind]));
    *event = made;
    return 0;
}

int pc_event_destroy(void* event)
{
    PC_TRY(cudaEventDestroy((cudaEvent_t)event));
    return 0;
}

int pc_event_record(void* event, void* stream)
{
    PC_TRY(cudaEventRecord((cudaEvent_t)event, pc_stream_of(stream)));
    return 0;
}

int pc_event_wait(void* event, void* stream)
{
    PC_TRY(cudaStreamWaitEvent(pc_stream_of(stream), (cudaEvent_t)event, 0));
    return 0;
}

int pc_event_synchronise(void* event)
{
    PC_TRY(cudaEventSynchronize((cudaEvent_t)event));
    return 0;
}

int pc_event_milliseconds(void* from, void* to, float* out)
{
    PC_TRY(cudaEventElapsedTime(out, (cudaEvent_t)from, (cudaEvent_t)to));
    return 0;
}

int pc_copy_in(void* d_to, const void* from, size_t bytes, void* stream)
{
    PC_TRY(cudaMemcpyAsync(d_to, from, bytes, cudaMemcpyHostToDevice, pc_stream_of(stream)));
    return 0;
}

int pc_copy_out(void* to, const void* d_from, size_t bytes, void* stream)
{
    PC_TRY(cudaMemcpyAsync(to, d_from, bytes, cudaMemcpyDeviceToHost, pc_stream_of(stream)));
    return 0;
}

int pc_copy_within(void* d_to, const void* d_from, size_t bytes, void* stream)
{
    PC_TRY(cudaMemcpyAsync(d_to, d_from, bytes, cudaMemcpyDeviceToDevice, pc_stream_of(stream)));
    return 0;
}

int pc_fill(void* d_memory, int byte, size_t bytes, void* stream)
{
    PC_TRY(cudaMemsetAsync(d_memory, byte, bytes, pc_stream_of(stream)));
    return 0;
}

int pc_host_register(void* memory, size_t bytes)
{
    PC_TRY(cudaHostRegister(memory, bytes, cudaHostRegisterPortable));
    return 0;
}

int pc_host_unregister(void* memory)
{
    PC_TRY(cudaHostUnregister(memory));
    return 0;
}

int pc_touched(const void* d_memory, size_t bytes, int byte, void* d_result, uint64_t* out, void* stream)
{
    cudaStream_t s = pc_stream_of(stream);
    uint32_t pattern = (uint32_t)(uint8_t)byte * 0x01010101u;
    PC_TRY(cudaMemsetAsync(d_result, 0, sizeof(uint64_t), s));
    pc_touched_kernel<<<1024, 256, 0, s>>>((const uint32_t*)d_memory, bytes / 4, pattern, (unsigned long long*)d_result);
    PC_LAUNCHED();
    PC_TRY(cudaMemcpyAsync(out, d_result, sizeof(uint64_t), cudaMemcpyDeviceToHost, s));
    PC_TRY(cudaStreamSynchronize(s));
    return 0;
}

int pc_break(void* stream)
{
    pc_break_kernel<<<1, 1, 0, pc_stream_of(stream)>>>();
    PC_LAUNCHED();
    return 0;
}

} // extern "C"
