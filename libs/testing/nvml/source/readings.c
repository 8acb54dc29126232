/* What a GPU measures. */
#include "stand_in.h"

#define SENSOR_GPU 0
enum { THRESHOLD_SHUTDOWN, THRESHOLD_SLOWDOWN, THRESHOLD_MEMORY, THRESHOLD_GPU };
enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO };

/* In microseconds, as real GPUs report it. */
#define SAMPLING_PERIOD 167000u
#define ALL_CLOCK_REASONS 0x1ffu

#define READING(function, type, field)                                     \
    API int function(void *device, type *value)                            \
    {                                                                      \
        DEVICE_CALL(device, 0);                                            \
        REQUIRE(value, INVALID_ARGUMENT);                                  \
        *value = call.gpu->field;                                          \
        return RETURN_SUCCESS;                                             \
    }

/* The driver does not measure these while the GPU is partitioned. */
#define ENGINE(function, field)                                            \
    API int function(void *device, unsigned *percent, unsigned *period)    \
    {                                                                      \
        DEVICE_CALL(device, 0);                                            \
        REQUIRE(percent && period, INVALID_ARGUMENT);                      \
        REQUIRE(!call.gpu->mig.mode, NOT_SUPPORTED);                       \
        *percent = call.gpu->readings.field;                               \
        *period = SAMPLING_PERIOD;                                         \
        return RETURN_SUCCESS;                                             \
    }

#define UNSUPPORTED(function)                                              \
    API int function(void *device, unsigned *value)                        \
    {                                                                      \
        DEVICE_CALL(device, 0);                                            \
        (void)value;                                                       \
        return RETURN_NOT_SUPPORTED;                                       \
    }

#define SUPPORTED_REASONS(function)                                        \
    API int function(void *device, uint64_t *reasons)                      \
    {                                                                      \
        DEVICE_CALL(device, 0);                                            \
        REQUIRE(reasons, INVALID_ARGUMENT);                                \
        *reasons = ALL_CLOCK_REASONS;                                      \
        return RETURN_SUCCESS;                                             \
    }

READING(nvmlDeviceGetPowerUsage, unsigned, readings.power_mw)
READING(nvmlDeviceGetEnforcedPowerLimit, unsigned, readings.power_limit_mw)
READING(nvmlDeviceGetPowerManagementLimit, unsigned, readings.power_limit_mw)
READING(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, limits.power_default_mw)
READING(nvmlDeviceGetTotalEnergyConsumption, uint64_t, readings.energy_mj)
READING(nvmlDeviceGetPerformanceState, unsigned, readings.performance_state)
READING(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, readings.pcie_generation)
READING(nvmlDeviceGetCurrPcieLinkWidth, unsigned, readings.pcie_width)
READING(nvmlDeviceGetPcieReplayCounter, unsigned, readings.pcie_replays)
READING(nvmlDeviceGetCurrentClocksEventReasons, uint64_t, readings.clock_reasons)
READING(nvmlDeviceGetCurrentClocksThrottleReasons, uint64_t, readings.clock_reasons)
ENGINE(nvmlDeviceGetEncoderUtilization, encoder_utilization)
ENGINE(nvmlDeviceGetDecoderUtilization, decoder_utilization)
ENGINE(nvmlDeviceGetJpgUtilization, jpeg_utilization)
ENGINE(nvmlDeviceGetOfaUtilization, ofa_utilization)
UNSUPPORTED(nvmlDeviceGetFanSpeed)
UNSUPPORTED(nvmlDeviceGetNumFans)
SUPPORTED_REASONS(nvmlDeviceGetSupportedClocksEventReasons)
SUPPORTED_REASONS(nvmlDeviceGetSupportedClocksThrottleReasons)

API int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *degrees)
{
    DEVICE_CALL(device, 0);
    REQUIRE(degrees && sensor == SENSOR_GPU, INVALID_ARGUMENT);
    *degrees = (unsigned)call.gpu->readings.temperature_c;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetTemperatureV(void *device, struct temperature_v1 *temperature)
{
    DEVICE_CALL(device, 0);
    REQUIRE(temperature, INVALID_ARGUMENT);
    REQUIRE(temperature->version == VERSION(struct temperature_v1, 1), ARGUMENT_VERSION_MISMATCH);
    REQUIRE(temperature->sensor_type == SENSOR_GPU, INVALID_ARGUMENT);
    temperature->temperature = call.gpu->readings.temperature_c;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetTemperatureThreshold(void *device, unsigned kind, unsigned *degrees)
{
    DEVICE_CALL(device, 0);
    const struct limits *limits = &call.gpu->limits;
    REQUIRE(degrees, INVALID_ARGUMENT);
    switch (kind) {
    case THRESHOLD_SHUTDOWN: *degrees = limits->temperature_shutdown_c; break;
    case THRESHOLD_SLOWDOWN: *degrees = limits->temperature_slowdown_c; break;
    case THRESHOLD_GPU: *degrees = limits->temperature_maximum_c; break;
    default: return RETURN_NOT_SUPPORTED;
    }
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *minimum,
                                                     unsigned *maximum)
{
    DEVICE_CALL(device, 0);
    REQUIRE(minimum && maximum, INVALID_ARGUMENT);
    *minimum = call.gpu->limits.power_minimum_mw;
    *maximum = call.gpu->limits.power_maximum_mw;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetClockInfo(void *device, unsigned kind, unsigned *mhz)
{
    DEVICE_CALL(device, 0);
    const struct readings *readings = &call.gpu->readings;
    REQUIRE(mhz, INVALID_ARGUMENT);
    switch (kind) {
    case CLOCK_GRAPHICS: *mhz = readings->graphics_clock_mhz; break;
    case CLOCK_SM: *mhz = readings->sm_clock_mhz; break;
    case CLOCK_MEMORY: *mhz = readings->memory_clock_mhz; break;
    case CLOCK_VIDEO: *mhz = readings->video_clock_mhz; break;
    default: return RETURN_INVALID_ARGUMENT;
    }
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetMaxClockInfo(void *device, unsigned kind, unsigned *mhz)
{
    DEVICE_CALL(device, 0);
    const struct limits *limits = &call.gpu->limits;
    REQUIRE(mhz, INVALID_ARGUMENT);
    switch (kind) {
    case CLOCK_GRAPHICS: *mhz = limits->graphics_clock_mhz; break;
    case CLOCK_SM: *mhz = limits->sm_clock_mhz; break;
    case CLOCK_MEMORY: *mhz = limits->memory_clock_mhz; break;
    case CLOCK_VIDEO: *mhz = limits->video_clock_mhz; break;
    default: return RETURN_INVALID_ARGUMENT;
    }
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetUtilizationRates(void *device, struct utilization_rates *rates)
{
    DEVICE_CALL(device, 0);
    REQUIRE(rates, INVALID_ARGUMENT);
    REQUIRE(!call.gpu->mig.mode, NOT_SUPPORTED);
    rates->gpu = call.gpu->readings.gpu_utilization;
    rates->memory = call.gpu->readings.memory_utilization;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetPcieThroughput(void *device, unsigned counter, unsigned *kb_per_s)
{
    DEVICE_CALL(device, 0);
    const struct readings *readings = &call.gpu->readings;
    REQUIRE(kb_per_s && counter <= 1, INVALID_ARGUMENT);
    *kb_per_s = counter ? readings->pcie_rx_kb_per_s : readings->pcie_tx_kb_per_s;
    return RETURN_SUCCESS;
}

/* These GPUs run no vGPU. */
API int nvmlDeviceGetGridLicensableFeatures_v4(void *device,
                                               struct grid_licensable_features *features)
{
    DEVICE_CALL(device, 0);
    REQUIRE(features, INVALID_ARGUMENT);
    *features = (struct grid_licensable_features){0};
    return RETURN_SUCCESS;
}
