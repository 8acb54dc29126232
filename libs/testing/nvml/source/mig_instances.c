/* GPU instances: parts of a GPU with memory of their own.
 *
 * A GPU has seven compute slices and eight memory slices. A profile says how many of each an
 * instance takes, and at which memory slices it may begin: where memory fits, compute does too.
 */
#include <stdio.h>

#include "stand_in.h"

#define CONSTANTS 0x12u

static const struct mig_profile *by_constant(const struct gpu *gpu, uint32_t constant)
{
    for (uint32_t i = 0; i < gpu->mig.profile_count; i++)
        if (gpu->mig.profiles[i].constant == constant)
            return &gpu->mig.profiles[i];
    return NULL;
}

static const struct mig_profile *by_id(const struct gpu *gpu, uint32_t id)
{
    for (uint32_t i = 0; i < gpu->mig.profile_count; i++)
        if (gpu->mig.profiles[i].id == id)
            return &gpu->mig.profiles[i];
    return NULL;
}

static int fill_profile(const struct mig_profile *from, struct gpu_instance_profile *info)
{
    *info = (struct gpu_instance_profile){
        .id = from->id,
        .slice_count = from->slices,
        .instance_count = from->instances,
        .multiprocessor_count = from->multiprocessors,
        .copy_engine_count = from->copy_engines,
        .decoder_count = from->decoders,
        .encoder_count = from->encoders,
        .jpeg_count = from->jpeg_engines,
        .ofa_count = from->ofa_engines,
        .memory_size_mb = from->memory_mib,
    };
    return RETURN_SUCCESS;
}

static int fill_profile_v2(const struct mig_profile *from, struct gpu_instance_profile_v2 *info)
{
    REQUIRE(info->version == VERSION(*info, 2), ARGUMENT_VERSION_MISMATCH);
    *info = (struct gpu_instance_profile_v2){
        .version = info->version,
        .id = from->id,
        .slice_count = from->slices,
        .instance_count = from->instances,
        .multiprocessor_count = from->multiprocessors,
        .copy_engine_count = from->copy_engines,
        .decoder_count = from->decoders,
        .encoder_count = from->encoders,
        .jpeg_count = from->jpeg_engines,
        .ofa_count = from->ofa_engines,
        .memory_size_mb = from->memory_mib,
    };
    snprintf(info->name, sizeof(info->name), "MIG %.31s", from->name);
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetGpuInstanceProfileInfo(void *device, unsigned constant,
                                            struct gpu_instance_profile *info)
{
    DEVICE_CALL(device, 0);
    REQUIRE(info && constant < CONSTANTS, INVALID_ARGUMENT);
    const struct mig_profile *profile = by_constant(call.gpu, constant);
    return profile ? fill_profile(profile, info) : RETURN_NOT_SUPPORTED;
}

API int nvmlDeviceGetGpuInstanceProfileInfoV(void *device, unsigned constant,
                                             struct gpu_instance_profile_v2 *info)
{
    DEVICE_CALL(device, 0);
    REQUIRE(info && constant < CONSTANTS, INVALID_ARGUMENT);
    const struct mig_profile *profile = by_constant(call.gpu, constant);
    return profile ? fill_profile_v2(profile, info) : RETURN_NOT_SUPPORTED;
}

API int nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *device, unsigned id,
                                                      struct placement *placements,
                                                      unsigned *count)
{
    DEVICE_CALL(device, 0);
    REQUIRE(count, INVALID_ARGUMENT);
    const struct mig_profile *profile = by_id(call.gpu, id);
    REQUIRE(call.gpu->features.mig, NOT_SUPPORTED);
    REQUIRE(profile, INVALID_ARGUMENT);
    uint32_t room = *count;
    *count = profile->start_count;
    if (!placements)
        return RETURN_SUCCESS;
    REQUIRE(room >= profile->start_count, INSUFFICIENT_SIZE);
    for (uint32_t i = 0; i < profile->start_count; i++)
        placements[i] = (struct placement){profile->starts[i], profile->size};
    return RETURN_SUCCESS;
}

/* The memory slices that instances take, as bits. */
static uint32_t taken_slices(const struct gpu *gpu)
{
    uint32_t taken = 0;
    for (int i = 0; i < MAX_INSTANCES; i++) {
        const struct gpu_instance *instance = &gpu->mig.gpu_instances[i];
        if (instance->serial)
            taken |= ((1u << profile_of(gpu, instance)->size) - 1) << instance->start;
    }
    return taken;
}

static bool is_free(uint32_t taken, const struct mig_profile *profile, uint32_t start)
{
    return !(taken & ((1u << profile->size) - 1) << start);
}

/* How many more of a profile its own limit allows. */
static uint32_t allowed(const struct gpu *gpu, const struct mig_profile *profile)
{
    uint32_t same = 0;
    for (int i = 0; i < MAX_INSTANCES; i++) {
        const struct gpu_instance *instance = &gpu->mig.gpu_instances[i];
        same += instance->serial && profile_of(gpu, instance) == profile;
    }
    return profile->instances > same ? profile->instances - same : 0;
}

/* How many placements of any profile are possible. */
static unsigned possible_placements(const struct gpu *gpu, uint32_t taken)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < gpu->mig.profile_count; i++) {
        const struct mig_profile *profile = &gpu->mig.profiles[i];
        for (uint32_t j = 0; j < profile->start_count; j++)
            count += is_free(taken, profile, profile->starts[j]);
    }
    return count;
}

/* The start that leaves most placements possible, of equals the last; or MAX_INSTANCES. */
static uint32_t best_start(const struct gpu *gpu, const struct mig_profile *profile)
{
    uint32_t taken = taken_slices(gpu), best = MAX_INSTANCES;
    unsigned most = 0;
    for (uint32_t i = 0; i < profile->start_count; i++) {
        uint32_t start = profile->starts[i];
        if (!is_free(taken, profile, start))
            continue;
        unsigned left = possible_placements(gpu, taken | ((1u << profile->size) - 1) << start);
        if (best == MAX_INSTANCES || left >= most) {
            best = start;
            most = left;
        }
    }
    return best;
}

API int nvmlDeviceGetGpuInstanceRemainingCapacity(void *device, unsigned id, unsigned *count)
{
    DEVICE_CALL(device, INSTANCES);
    const struct mig_profile *profile = by_id(call.gpu, id);
    REQUIRE(call.gpu->features.mig && call.gpu->mig.mode, NOT_SUPPORTED);
    REQUIRE(count && profile, INVALID_ARGUMENT);
    uint32_t taken = taken_slices(call.gpu), most = allowed(call.gpu, profile);
    *count = 0;
    for (uint32_t i = 0; i < profile->start_count && *count < most; i++) {
        if (!is_free(taken, profile, profile->starts[i]))
            continue;
        taken |= ((1u << profile->size) - 1) << profile->starts[i];
        ++*count;
    }
    return RETURN_SUCCESS;
}

/* Real drivers number instances by their place, beginning with the upper half. */
static uint32_t place_number(uint32_t start, uint32_t size)
{
    switch (size) {
    case 1: return 7 + (start + 4) % 8;
    case 2: return 3 + (start / 2 + 2) % 4;
    case 4: return 1 + (start / 4 + 1) % 2;
    default: return 0;
    }
}

static int create(struct call *call, const struct mig_profile *profile, uint32_t start,
                  void **created)
{
    struct mig *mig = &call->gpu->mig;
    REQUIRE(start < MAX_INSTANCES && allowed(call->gpu, profile), INSUFFICIENT_RESOURCES);
    REQUIRE(is_free(taken_slices(call->gpu), profile, start), INSUFFICIENT_RESOURCES);
    for (int i = 0; i < MAX_INSTANCES; i++) {
        struct gpu_instance *instance = &mig->gpu_instances[i];
        if (instance->serial)
            continue;
        *instance = (struct gpu_instance){
            .id = place_number(start, profile->size),
            .profile = (uint32_t)(profile - mig->profiles),
            .start = start,
        };
        instance->serial = ++mig->serials;
        *created = gpu_instance_handle(call, instance);
        return RETURN_SUCCESS;
    }
    return RETURN_INSUFFICIENT_RESOURCES;
}

API int nvmlDeviceCreateGpuInstance(void *device, unsigned id, void **created)
{
    DEVICE_CALL(device, INSTANCES);
    const struct mig_profile *profile = by_id(call.gpu, id);
    REQUIRE(call.gpu->mig.mode, NOT_SUPPORTED);
    REQUIRE(created && profile, INVALID_ARGUMENT);
    return create(&call, profile, best_start(call.gpu, profile), created);
}

API int nvmlDeviceCreateGpuInstanceWithPlacement(void *device, unsigned id,
                                                 const struct placement *placement,
                                                 void **created)
{
    DEVICE_CALL(device, INSTANCES);
    const struct mig_profile *profile = by_id(call.gpu, id);
    REQUIRE(call.gpu->mig.mode, NOT_SUPPORTED);
    REQUIRE(created && placement && profile, INVALID_ARGUMENT);
    for (uint32_t i = 0; i < profile->start_count; i++)
        if (profile->starts[i] == placement->start && profile->size == placement->size)
            return create(&call, profile, placement->start, created);
    return RETURN_INVALID_ARGUMENT;
}

API int nvmlDeviceGetGpuInstances(void *device, unsigned id, void **found, unsigned *count)
{
    DEVICE_CALL(device, INSTANCES);
    const struct mig_profile *profile = by_id(call.gpu, id);
    REQUIRE(call.gpu->mig.mode, NOT_SUPPORTED);
    REQUIRE(found && count && profile, INVALID_ARGUMENT);
    *count = 0;
    for (int i = 0; i < MAX_INSTANCES; i++) {
        const struct gpu_instance *instance = &call.gpu->mig.gpu_instances[i];
        if (instance->serial && profile_of(call.gpu, instance) == profile)
            found[(*count)++] = gpu_instance_handle(&call, instance);
    }
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetGpuInstanceById(void *device, unsigned id, void **found)
{
    DEVICE_CALL(device, INSTANCES);
    REQUIRE(found, INVALID_ARGUMENT);
    REQUIRE(call.gpu->mig.mode, NOT_SUPPORTED);
    for (int i = 0; i < MAX_INSTANCES; i++) {
        const struct gpu_instance *instance = &call.gpu->mig.gpu_instances[i];
        if (!instance->serial || instance->id != id)
            continue;
        *found = gpu_instance_handle(&call, instance);
        return RETURN_SUCCESS;
    }
    return RETURN_NOT_FOUND;
}

API int nvmlGpuInstanceGetInfo(void *handle, struct gpu_instance_info *info)
{
    GPU_INSTANCE_CALL(handle);
    REQUIRE(info, INVALID_ARGUMENT);
    const struct mig_profile *profile = profile_of(call.gpu, call.gpu_instance);
    info->device = device_handle(call.index);
    info->id = call.gpu_instance->id;
    info->profile_id = profile->id;
    info->placement = (struct placement){call.gpu_instance->start, profile->size};
    return RETURN_SUCCESS;
}

API int nvmlGpuInstanceDestroy(void *handle)
{
    GPU_INSTANCE_CALL(handle);
    struct gpu_instance *instance = call.gpu_instance;
    for (int i = 0; i < MAX_INSTANCES; i++)
        REQUIRE(call.gpu->mig.compute_instances[i].gpu_instance != instance->serial, IN_USE);
    REQUIRE(!instance_is_used(call.gpu, instance->id, NO_INSTANCE), IN_USE);
    memset(instance, 0, sizeof(*instance));
    return RETURN_SUCCESS;
}
