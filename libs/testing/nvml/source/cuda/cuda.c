/* A stand-in for libcuda over the same machine: enough to prove a GPU, and to fail at that.

It compiles no PTX. It knows the text of the one kernel that proves a GPU, does in C what that does,
and refuses every other text. A GPU is chosen as CUDA does, by CUDA_VISIBLE_DEVICES. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernel.h"
#include "stand_in.h"

#define CUDA __attribute__((visibility("default")))

#define CHECKED_CALL() BEGIN; REQUIRE_CUDA(enter(&call, __func__))
#define REQUIRE_CUDA(code) do { int found = code; if (found) return found; } while (0)

int nvmlInitWithFlags(unsigned flags);

/* The visible devices, whose files are there: GPUs without MIG, and compute instances. */
struct device {
    uint32_t gpu;
    char uuid[64];
};

static struct device devices[MAX_GPUS * MAX_INSTANCES];
static int device_count, current = -1;

/* Beside a driver of another version the vendor's library has no better word than "unknown". */
static int cuda_code(int result)
{
    switch (result) {
    case RETURN_SUCCESS: return CUDA_RESULT_SUCCESS;
    case RETURN_DRIVER_NOT_LOADED: return CUDA_RESULT_NO_DEVICE;
    case RETURN_UNINITIALIZED: return CUDA_RESULT_NOT_INITIALIZED;
    default: return CUDA_RESULT_UNKNOWN;
    }
}

/* Begin a call of the current device, or of the driver: hangs and faults take effect. */
static int enter(struct call *call, const char *function)
{
    uint32_t gpu = current < 0 ? EVERY_GPU : devices[current].gpu;
    call->result = session_enter(call);
    if (call->result)
        return cuda_code(call->result);
    if (call->machine->one_lock)
        lock_driver(call);
    int fault = fault_result(call->machine, function, gpu);
    while (fault == CUDA_RESULT_HANG)
        pause_briefly();
    if (fault)
        return fault == CUDA_RESULT_WRONG ? CUDA_RESULT_SUCCESS : fault;
    if (gpu != EVERY_GPU)
        call_gpu(call, function, gpu, 0);
    return cuda_code(call->result);
}

static void add_device(uint32_t gpu, const char *uuid)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && strcmp(visible, uuid) != 0)
        return;
    devices[device_count].gpu = gpu;
    snprintf(devices[device_count++].uuid, sizeof(devices[0].uuid), "%s", uuid);
}

static void list_devices(struct machine *machine)
{
    char uuid[64];
    struct compute_instance *order[MAX_INSTANCES];
    device_count = 0;
    for (uint32_t i = 0; i < machine->gpu_count; i++) {
        struct gpu *gpu = &machine->gpus[i];
        if (gpu->health.condition || !session_holds(machine, i))
            continue;
        if (!gpu->mig.mode) {
            add_device(i, gpu->identity.uuid);
            continue;
        }
        int count = ordered_instances(gpu, order);
        for (int j = 0; j < count; j++) {
            mig_uuid(gpu, gpu_instance_of(gpu, order[j])->id, order[j]->id, uuid);
            add_device(i, uuid);
        }
    }
}

/* Unified memory has a device file of its own, without which CUDA does not begin. */
static int hold_uvm(const struct machine *machine)
{
    char path[512];
    if (!machine->device_folder[0])
        return CUDA_RESULT_SUCCESS;
    snprintf(path, sizeof(path), "%s/nvidia-uvm", machine->device_folder);
    return open(path, O_RDWR | O_CLOEXEC) < 0 ? CUDA_RESULT_UNKNOWN : CUDA_RESULT_SUCCESS;
}

CUDA int cuInit(unsigned flags)
{
    REQUIRE_CUDA(cuda_code(nvmlInitWithFlags(flags)));
    CHECKED_CALL();
    REQUIRE_CUDA(hold_uvm(call.machine));
    list_devices(call.machine);
    return device_count ? CUDA_RESULT_SUCCESS : CUDA_RESULT_NO_DEVICE;
}

CUDA int cuDriverGetVersion(int *version)
{
    CHECKED_CALL();
    *version = call.machine->cuda_version;
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuGetErrorName(int code, const char **name)
{
    *name = cuda_result_name(code);
    return *name ? CUDA_RESULT_SUCCESS : CUDA_RESULT_INVALID_VALUE;
}

CUDA int cuDeviceGetCount(int *count)
{
    CHECKED_CALL();
    *count = device_count;
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuDeviceGet(int *device, int ordinal)
{
    CHECKED_CALL();
    if (ordinal < 0 || ordinal >= device_count)
        return CUDA_RESULT_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuDeviceGetUuid_v2(unsigned char uuid[16], int device)
{
    CHECKED_CALL();
    int taken = 0;
    unsigned byte;
    const char *text = strchr(devices[device].uuid, '-') + 1;
    for (int i = 0; i < 16 && sscanf(text, "%2x%n", &byte, &taken) == 1; i++) {
        uuid[i] = (unsigned char)byte;
        text += taken + (text[taken] == '-');
    }
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuDevicePrimaryCtxRetain(void **context, int device)
{
    current = device;
    CHECKED_CALL();
    *context = &devices[device];
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    current = -1;
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuCtxSetCurrent(void *context)
{
    (void)context;
    CHECKED_CALL();
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuModuleLoadData(void **module, const char *image)
{
    CHECKED_CALL();
    if (strcmp(image, KERNEL_TEXT) != 0)
        return CUDA_RESULT_INVALID_PTX;
    *module = call.machine;
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuModuleGetFunction(void **function, void *module, const char *name)
{
    CHECKED_CALL();
    if (strcmp(name, KERNEL_NAME) != 0)
        return CUDA_RESULT_NOT_FOUND;
    *function = module;
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuMemAlloc_v2(uint64_t *memory, size_t size)
{
    CHECKED_CALL();
    *memory = (uint64_t)(uintptr_t)malloc(size);
    return *memory ? CUDA_RESULT_SUCCESS : CUDA_RESULT_OUT_OF_MEMORY;
}

CUDA int cuMemFree_v2(uint64_t memory)
{
    CHECKED_CALL();
    free((void *)(uintptr_t)memory);
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuMemcpyHtoD_v2(uint64_t target, const void *source, size_t size)
{
    CHECKED_CALL();
    memcpy((void *)(uintptr_t)target, source, size);
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuMemcpyDtoH_v2(void *target, uint64_t source, size_t size)
{
    CHECKED_CALL();
    memcpy(target, (const void *)(uintptr_t)source, size);
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuLaunchKernel(void *function, unsigned blocks, unsigned y, unsigned z, unsigned threads,
                        unsigned thread_y, unsigned thread_z, unsigned shared, void *stream,
                        void **arguments, void **extra)
{
    CHECKED_CALL();
    uint32_t *values = *(uint32_t **)arguments[0];
    uint32_t count = blocks * y * z * threads * thread_y * thread_z;
    (void)function, (void)shared, (void)stream, (void)extra;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t step = 0; step < KERNEL_STEPS; step++)
            values[i] = values[i] * KERNEL_MULTIPLIER + KERNEL_INCREMENT;
    if (fault_result(call.machine, __func__, devices[current].gpu) == CUDA_RESULT_WRONG)
        values[count / 2] ^= 1;
    return CUDA_RESULT_SUCCESS;
}

CUDA int cuCtxSynchronize(void)
{
    CHECKED_CALL();
    return CUDA_RESULT_SUCCESS;
}
