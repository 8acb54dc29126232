/* The MIG mode of a GPU, and its MIG devices: one per compute instance. */
#include "stand_in.h"

API int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    DEVICE_CALL(device, BEFORE_RESET);
    REQUIRE(current && pending, INVALID_ARGUMENT);
    REQUIRE(call.gpu->features.mig, NOT_SUPPORTED);
    *current = call.gpu->mig.mode;
    *pending = call.gpu->mig.pending_mode;
    return RETURN_SUCCESS;
}

static bool has_instances(const struct gpu *gpu)
{
    for (int i = 0; i < MAX_INSTANCES; i++)
        if (gpu->mig.gpu_instances[i].serial)
            return true;
    return false;
}

/* The call succeeds even if the mode stays pending; `status` says why it does. */
API int nvmlDeviceSetMigMode(void *device, unsigned mode, unsigned *status)
{
    DEVICE_CALL(device, INSTANCES);
    struct mig *mig = &call.gpu->mig;
    REQUIRE(status && mode <= 1, INVALID_ARGUMENT);
    REQUIRE(call.gpu->features.mig, NOT_SUPPORTED);
    mig->pending_mode = mode;
    if (mode == mig->mode)
        *status = RETURN_SUCCESS;
    else if (call.gpu->process_count || has_instances(call.gpu))
        *status = RETURN_IN_USE;
    else
        *status = mig->activation;
    if (*status == RETURN_SUCCESS)
        mig->mode = mode;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count)
{
    DEVICE_CALL(device, BEFORE_RESET);
    REQUIRE(count, INVALID_ARGUMENT);
    *count = call.gpu->mig.mode ? COMPUTE_SLICES : 0;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **found)
{
    DEVICE_CALL(device, INSTANCES);
    struct compute_instance *order[MAX_INSTANCES];
    REQUIRE(found, INVALID_ARGUMENT);
    REQUIRE(call.gpu->features.mig, NOT_SUPPORTED);
    REQUIRE(index < COMPUTE_SLICES, INVALID_ARGUMENT);
    REQUIRE((int)index < ordered_instances(call.gpu, order), NOT_FOUND);
    *found = mig_handle(&call, order[index]);
    return RETURN_SUCCESS;
}

API int nvmlDeviceIsMigDeviceHandle(void *device, unsigned *is)
{
    DEVICE_CALL(device, MIG_DEVICE | BEFORE_RESET);
    REQUIRE(is, INVALID_ARGUMENT);
    *is = call.compute_instance != NULL;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *device, void **parent)
{
    DEVICE_CALL(device, MIG_DEVICE | BEFORE_RESET);
    REQUIRE(parent, INVALID_ARGUMENT);
    REQUIRE(call.compute_instance, INVALID_ARGUMENT);
    *parent = device_handle(call.index);
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetGpuInstanceId(void *device, unsigned *id)
{
    DEVICE_CALL(device, MIG_DEVICE);
    REQUIRE(id, INVALID_ARGUMENT);
    REQUIRE(call.compute_instance, NOT_SUPPORTED);
    *id = call.gpu_instance->id;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetComputeInstanceId(void *device, unsigned *id)
{
    DEVICE_CALL(device, MIG_DEVICE);
    REQUIRE(id, INVALID_ARGUMENT);
    REQUIRE(call.compute_instance, NOT_SUPPORTED);
    *id = call.compute_instance->id;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetAttributes_v2(void *device, struct device_attributes *attributes)
{
    DEVICE_CALL(device, MIG_DEVICE);
    REQUIRE(attributes, INVALID_ARGUMENT);
    REQUIRE(call.compute_instance, NOT_SUPPORTED);
    const struct mig_profile *profile = profile_of(call.gpu, call.gpu_instance);
    *attributes = (struct device_attributes){
        .multiprocessor_count = compute_multiprocessors(call.gpu, profile,
                                                   call.compute_instance->slices),
        .shared_copy_engine_count = profile->copy_engines,
        .shared_decoder_count = profile->decoders,
        .shared_encoder_count = profile->encoders,
        .shared_jpeg_count = profile->jpeg_engines,
        .shared_ofa_count = profile->ofa_engines,
        .gpu_instance_slice_count = profile->slices,
        .compute_instance_slice_count = call.compute_instance->slices,
        .memory_size_mb = profile->memory_mib,
    };
    return RETURN_SUCCESS;
}
