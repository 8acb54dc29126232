/* Compute instances: parts of a GPU instance that share its memory. */
#include <stdio.h>

#include "stand_in.h"

#define CONSTANTS 9u

static const uint32_t slices_of[] = {1, 2, 3, 4, 7};

/* The slices of a compute profile that the GPU instance can hold, or 0. */
static uint32_t slices_in(const struct mig_profile *profile, uint32_t constant)
{
    uint32_t whole = profile->slices;
    if (constant >= sizeof(slices_of) / sizeof(*slices_of))
        return 0;
    uint32_t slices = slices_of[constant];
    bool possible = slices == whole || (slices < whole && 2 * slices <= whole + 1);
    return possible ? slices : 0;
}

static int profile_info(const struct call *call, unsigned constant, unsigned engines,
                        struct compute_instance_profile *info)
{
    const struct mig_profile *profile = profile_of(call->gpu, call->gpu_instance);
    REQUIRE(info && constant < CONSTANTS && engines == 0, INVALID_ARGUMENT);
    uint32_t slices = slices_in(profile, constant);
    REQUIRE(slices, NOT_SUPPORTED);
    *info = (struct compute_instance_profile){
        .id = constant,
        .slice_count = slices,
        .instance_count = profile->slices / slices,
        .multiprocessor_count = compute_multiprocessors(call->gpu, profile, slices),
        .shared_copy_engine_count = profile->copy_engines,
        .shared_decoder_count = profile->decoders,
        .shared_encoder_count = profile->encoders,
        .shared_jpeg_count = profile->jpeg_engines,
        .shared_ofa_count = profile->ofa_engines,
    };
    return RETURN_SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstanceProfileInfo(void *handle, unsigned constant,
                                                     unsigned engines,
                                                     struct compute_instance_profile *info)
{
    GPU_INSTANCE_CALL(handle);
    return profile_info(&call, constant, engines, info);
}

API int nvmlGpuInstanceGetComputeInstanceProfileInfoV(void *handle, unsigned constant,
                                                      unsigned engines,
                                                      struct compute_instance_profile_v2 *info)
{
    GPU_INSTANCE_CALL(handle);
    struct compute_instance_profile found;
    REQUIRE(info, INVALID_ARGUMENT);
    REQUIRE(info->version == VERSION(*info, 2), ARGUMENT_VERSION_MISMATCH);
    call.result = profile_info(&call, constant, engines, &found);
    CHECKED;
    memcpy(&info->id, &found, sizeof(found));
    const struct mig_profile *profile = profile_of(call.gpu, call.gpu_instance);
    if (found.slice_count == profile->slices)
        snprintf(info->name, sizeof(info->name), "MIG %.31s", profile->name);
    else
        snprintf(info->name, sizeof(info->name), "MIG %uc.%.31s", found.slice_count, profile->name);
    return RETURN_SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstancePossiblePlacements(void *handle, unsigned id,
                                                            struct placement *placements,
                                                            unsigned *count)
{
    GPU_INSTANCE_CALL(handle);
    uint32_t whole = profile_of(call.gpu, call.gpu_instance)->slices;
    uint32_t slices = slices_in(profile_of(call.gpu, call.gpu_instance), id);
    REQUIRE(count && slices, INVALID_ARGUMENT);
    uint32_t room = *count;
    *count = whole / slices;
    REQUIRE(!placements || room >= *count, INSUFFICIENT_SIZE);
    for (uint32_t i = 0; placements && i < *count; i++)
        placements[i] = (struct placement){i * slices, slices};
    return RETURN_SUCCESS;
}

static uint32_t taken_slices(const struct call *call)
{
    uint32_t taken = 0;
    for (int i = 0; i < MAX_INSTANCES; i++) {
        const struct compute_instance *instance = &call->gpu->mig.compute_instances[i];
        if (instance->serial && instance->gpu_instance == call->gpu_instance->serial)
            taken |= ((1u << instance->slices) - 1) << instance->start;
    }
    return taken;
}

static bool is_free(uint32_t taken, uint32_t slices, uint32_t start)
{
    return !(taken & ((1u << slices) - 1) << start);
}

API int nvmlGpuInstanceGetComputeInstanceRemainingCapacity(void *handle, unsigned id,
                                                           unsigned *count)
{
    GPU_INSTANCE_CALL(handle);
    const struct mig_profile *profile = profile_of(call.gpu, call.gpu_instance);
    uint32_t slices = slices_in(profile, id), taken = taken_slices(&call);
    REQUIRE(count && slices, INVALID_ARGUMENT);
    *count = 0;
    for (uint32_t start = 0; start + slices <= profile->slices; start += slices)
        *count += is_free(taken, slices, start);
    return RETURN_SUCCESS;
}

/* The first number that no compute instance of the GPU instance has. */
static uint32_t free_id(const struct call *call)
{
    uint32_t ids = 0, id = 0;
    for (int i = 0; i < MAX_INSTANCES; i++) {
        const struct compute_instance *instance = &call->gpu->mig.compute_instances[i];
        if (instance->serial && instance->gpu_instance == call->gpu_instance->serial)
            ids |= 1u << instance->id;
    }
    while (ids & 1u << id)
        id++;
    return id;
}

static int create(struct call *call, uint32_t constant, uint32_t slices, uint32_t start,
                  void **created)
{
    struct mig *mig = &call->gpu->mig;
    for (int i = 0; i < MAX_INSTANCES; i++) {
        struct compute_instance *instance = &mig->compute_instances[i];
        if (instance->serial)
            continue;
        *instance = (struct compute_instance){
            .id = free_id(call),
            .gpu_instance = call->gpu_instance->serial,
            .profile = constant,
            .slices = slices,
            .start = start,
        };
        instance->serial = ++mig->serials;
        *created = compute_instance_handle(call, instance);
        return RETURN_SUCCESS;
    }
    return RETURN_INSUFFICIENT_RESOURCES;
}

API int nvmlGpuInstanceCreateComputeInstance(void *handle, unsigned id, void **created)
{
    GPU_INSTANCE_CALL(handle);
    const struct mig_profile *profile = profile_of(call.gpu, call.gpu_instance);
    uint32_t slices = slices_in(profile, id), taken = taken_slices(&call);
    REQUIRE(created && slices, INVALID_ARGUMENT);
    for (uint32_t start = 0; start + slices <= profile->slices; start += slices)
        if (is_free(taken, slices, start))
            return create(&call, id, slices, start, created);
    return RETURN_INSUFFICIENT_RESOURCES;
}

API int nvmlGpuInstanceCreateComputeInstanceWithPlacement(void *handle, unsigned id,
                                                          const struct placement *placement,
                                                          void **created)
{
    GPU_INSTANCE_CALL(handle);
    const struct mig_profile *profile = profile_of(call.gpu, call.gpu_instance);
    uint32_t slices = slices_in(profile, id);
    REQUIRE(created && placement && slices, INVALID_ARGUMENT);
    REQUIRE(placement->size == slices && placement->start % slices == 0, INVALID_ARGUMENT);
    REQUIRE(placement->start + slices <= profile->slices, INVALID_ARGUMENT);
    REQUIRE(is_free(taken_slices(&call), slices, placement->start), INSUFFICIENT_RESOURCES);
    return create(&call, id, slices, placement->start, created);
}

API int nvmlGpuInstanceGetComputeInstances(void *handle, unsigned id, void **found,
                                           unsigned *count)
{
    GPU_INSTANCE_CALL(handle);
    REQUIRE(found && count && id < CONSTANTS, INVALID_ARGUMENT);
    *count = 0;
    for (int i = 0; i < MAX_INSTANCES; i++) {
        const struct compute_instance *instance = &call.gpu->mig.compute_instances[i];
        if (instance->serial && instance->gpu_instance == call.gpu_instance->serial &&
            instance->profile == id)
            found[(*count)++] = compute_instance_handle(&call, instance);
    }
    return RETURN_SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstanceById(void *handle, unsigned id, void **found)
{
    GPU_INSTANCE_CALL(handle);
    REQUIRE(found, INVALID_ARGUMENT);
    for (int i = 0; i < MAX_INSTANCES; i++) {
        const struct compute_instance *instance = &call.gpu->mig.compute_instances[i];
        if (!instance->serial || instance->gpu_instance != call.gpu_instance->serial ||
            instance->id != id)
            continue;
        *found = compute_instance_handle(&call, instance);
        return RETURN_SUCCESS;
    }
    return RETURN_NOT_FOUND;
}

API int nvmlComputeInstanceGetInfo_v2(void *handle, struct compute_instance_info *info)
{
    COMPUTE_INSTANCE_CALL(handle);
    const struct compute_instance *instance = call.compute_instance;
    REQUIRE(info, INVALID_ARGUMENT);
    info->device = device_handle(call.index);
    info->gpu_instance = gpu_instance_handle(&call, call.gpu_instance);
    info->id = instance->id;
    info->profile_id = instance->profile;
    info->placement = (struct compute_placement){instance->start, instance->slices};
    return RETURN_SUCCESS;
}

API int nvmlComputeInstanceDestroy(void *handle)
{
    COMPUTE_INSTANCE_CALL(handle);
    uint32_t gpu_instance = call.gpu_instance->id, id = call.compute_instance->id;
    REQUIRE(!instance_is_used(call.gpu, gpu_instance, id), IN_USE);
    memset(call.compute_instance, 0, sizeof(*call.compute_instance));
    return RETURN_SUCCESS;
}
