/* The memory of a GPU, and the processes that compute on it. */
#include "stand_in.h"

#define MIB (1024u * 1024u)

struct amounts { uint64_t total, reserved, used; };

static struct amounts amounts(const struct call *call)
{
    if (!call->gpu_instance)
        return (struct amounts){call->gpu->identity.memory_total,
                                call->gpu->identity.memory_reserved,
                                call->gpu->readings.memory_used};
    const struct mig_profile *profile = profile_of(call->gpu, call->gpu_instance);
    return (struct amounts){profile->memory_mib * MIB, 0, call->gpu_instance->memory_used};
}

static uint64_t available(const struct amounts *of)
{
    uint64_t taken = of->reserved + of->used;
    return taken < of->total ? of->total - taken : 0;
}

/* The older call counts what is reserved as used. */
API int nvmlDeviceGetMemoryInfo(void *device, struct memory_info *info)
{
    DEVICE_CALL(device, MIG_DEVICE);
    REQUIRE(info, INVALID_ARGUMENT);
    struct amounts memory = amounts(&call);
    info->total = memory.total;
    info->free = available(&memory);
    info->used = info->total - info->free;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_info_v2 *info)
{
    DEVICE_CALL(device, MIG_DEVICE);
    REQUIRE(info, INVALID_ARGUMENT);
    REQUIRE(info->version == VERSION(struct memory_info_v2, 2), ARGUMENT_VERSION_MISMATCH);
    struct amounts memory = amounts(&call);
    info->total = memory.total;
    info->reserved = memory.reserved;
    info->free = available(&memory);
    info->used = memory.used;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                                struct process_info *found)
{
    DEVICE_CALL(device, MIG_DEVICE);
    unsigned number = 0, room;
    REQUIRE(count, INVALID_ARGUMENT);
    room = *count;
    for (uint32_t i = 0; i < call.gpu->process_count; i++) {
        const struct process *process = &call.gpu->processes[i];
        if (call.compute_instance && (process->gpu_instance != call.gpu_instance->id ||
                                      process->compute_instance != call.compute_instance->id))
            continue;
        if (found && number < room)
            found[number] = (struct process_info){process->pid, process->memory,
                                                  process->gpu_instance,
                                                  process->compute_instance};
        number++;
    }
    *count = number;
    return number > room ? RETURN_INSUFFICIENT_SIZE : RETURN_SUCCESS;
}

API int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count,
                                                 struct process_info *found)
{
    DEVICE_CALL(device, MIG_DEVICE);
    REQUIRE(count, INVALID_ARGUMENT);
    (void)found;
    *count = 0;
    return RETURN_SUCCESS;
}

bool instance_is_used(const struct gpu *gpu, uint32_t gpu_instance, uint32_t compute_instance)
{
    for (uint32_t i = 0; i < gpu->process_count; i++) {
        const struct process *process = &gpu->processes[i];
        bool same = process->compute_instance == compute_instance;
        if (process->gpu_instance == gpu_instance && (same || compute_instance == NO_INSTANCE))
            return true;
    }
    return false;
}
