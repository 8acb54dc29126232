/* GPM: what the performance monitors of Hopper and later measured between two samples. */
#include <stdlib.h>

#include "stand_in.h"

#define GPM_VERSION 1u
#define WHOLE_GPU UINT32_MAX

struct sample {
    bool taken;
    uint32_t gpu, gpu_instance;
    uint64_t time;
    struct profiling values;
};

static const struct metric {
    uint32_t id;
    const char *name, *unit;
    size_t offset;
} metrics[] = {
#define METRIC(id, name, unit, field) {id, name, unit, offsetof(struct profiling, field)}
    METRIC(1, "Graphics", "%", graphics),
    METRIC(2, "SM", "%", sm),
    METRIC(3, "SM occupancy", "%", sm_occupancy),
    METRIC(4, "Integer", "%", integer),
    METRIC(5, "Tensor", "%", tensor),
    METRIC(6, "Tensor DFMA", "%", tensor_dfma),
    METRIC(7, "Tensor HMMA", "%", tensor_hmma),
    METRIC(8, "Tensor DMMA", "%", tensor_dmma),
    METRIC(9, "Tensor IMMA", "%", tensor_imma),
    METRIC(10, "DRAM", "%", dram),
    METRIC(11, "FP64", "%", fp64),
    METRIC(12, "FP32", "%", fp32),
    METRIC(13, "FP16", "%", fp16),
    METRIC(20, "PCIe sent", "MiB/s", pcie_tx),
    METRIC(21, "PCIe received", "MiB/s", pcie_rx),
    METRIC(60, "NVLink received", "MiB/s", nvlink_rx),
    METRIC(61, "NVLink sent", "MiB/s", nvlink_tx),
#undef METRIC
};

API int nvmlGpmQueryDeviceSupport(void *device, struct gpm_support *support)
{
    DEVICE_CALL(device, 0);
    REQUIRE(support, INVALID_ARGUMENT);
    REQUIRE(support->version == GPM_VERSION, ARGUMENT_VERSION_MISMATCH);
    support->is_supported_device = call.gpu->features.profiling;
    return RETURN_SUCCESS;
}

API int nvmlGpmSampleAlloc(struct sample **sample)
{
    SYSTEM_CALL();
    REQUIRE(sample, INVALID_ARGUMENT);
    *sample = calloc(1, sizeof(**sample));
    return *sample ? RETURN_SUCCESS : RETURN_MEMORY;
}

API int nvmlGpmSampleFree(struct sample *sample)
{
    SYSTEM_CALL();
    REQUIRE(sample, INVALID_ARGUMENT);
    free(sample);
    return RETURN_SUCCESS;
}

static int take_sample(const struct call *call, uint32_t gpu_instance, struct sample *sample)
{
    REQUIRE(sample, INVALID_ARGUMENT);
    REQUIRE(call->gpu->features.profiling, NOT_SUPPORTED);
    *sample = (struct sample){true, call->index, gpu_instance, monotonic_ns(),
                              call->gpu->profiling};
    return RETURN_SUCCESS;
}

API int nvmlGpmSampleGet(void *device, struct sample *sample)
{
    DEVICE_CALL(device, 0);
    return take_sample(&call, WHOLE_GPU, sample);
}

/* All instances measure what is set for the GPU. */
API int nvmlGpmMigSampleGet(void *device, unsigned gpu_instance, struct sample *sample)
{
    DEVICE_CALL(device, INSTANCES);
    for (int i = 0; i < MAX_INSTANCES; i++) {
        const struct gpu_instance *instance = &call.gpu->mig.gpu_instances[i];
        if (instance->serial && instance->id == gpu_instance)
            return take_sample(&call, gpu_instance, sample);
    }
    return RETURN_INVALID_ARGUMENT;
}

static void measure(const struct sample *sample, struct gpm_metric *wanted)
{
    wanted->nvml_return = RETURN_NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof(metrics) / sizeof(*metrics); i++) {
        const struct metric *metric = &metrics[i];
        if (metric->id != wanted->metric_id)
            continue;
        wanted->nvml_return = RETURN_SUCCESS;
        wanted->value = *(const double *)((const char *)&sample->values + metric->offset);
        wanted->metric_info.short_name = wanted->metric_info.long_name = metric->name;
        wanted->metric_info.unit = metric->unit;
    }
}

/* The rates between two samples are those set when the second was taken. */
API int nvmlGpmMetricsGet(struct gpm_metrics_get *request)
{
    SYSTEM_CALL();
    REQUIRE(request, INVALID_ARGUMENT);
    REQUIRE(request->version == GPM_VERSION, ARGUMENT_VERSION_MISMATCH);
    const struct sample *first = request->first, *second = request->second;
    REQUIRE(first && second && first->taken && second->taken, INVALID_ARGUMENT);
    REQUIRE(first->gpu == second->gpu && first->gpu_instance == second->gpu_instance,
            INVALID_ARGUMENT);
    REQUIRE(first->time < second->time, INVALID_ARGUMENT);
    struct gpm_metric *wanted = (struct gpm_metric *)(request + 1);
    for (uint32_t i = 0; i < request->count; i++)
        measure(second, &wanted[i]);
    return RETURN_SUCCESS;
}
