/* Errors of a GPU's memory, and what was done about them. */
#include "stand_in.h"

enum { CORRECTED, UNCORRECTED };
enum { VOLATILE, AGGREGATE };
enum { LOCATION_DRAM = 2, LOCATION_SRAM = 7 };
enum { SINGLE_BIT, DOUBLE_BIT };

/* Banks of memory that can still remap a row. */
#define BANKS 640u
/* Pages are retired at made-up addresses, one after the other. */
#define FIRST_PAGE 0x1000u

static const struct ecc_counts *counts(const struct call *call, unsigned counter)
{
    const struct health *health = &call->gpu->health;
    return counter == VOLATILE ? &health->ecc_volatile : &health->ecc_aggregate;
}

static bool has_ecc(const struct call *call)
{
    return call->gpu->features.ecc && call->gpu->health.ecc_mode;
}

API int nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending)
{
    DEVICE_CALL(device, 0);
    REQUIRE(current && pending, INVALID_ARGUMENT);
    REQUIRE(call.gpu->features.ecc, NOT_SUPPORTED);
    *current = call.gpu->health.ecc_mode;
    *pending = call.gpu->health.ecc_mode_pending;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetTotalEccErrors(void *device, unsigned error, unsigned counter,
                                    uint64_t *count)
{
    DEVICE_CALL(device, 0);
    REQUIRE(count && error <= UNCORRECTED && counter <= AGGREGATE, INVALID_ARGUMENT);
    REQUIRE(has_ecc(&call), NOT_SUPPORTED);
    const struct ecc_counts *of = counts(&call, counter);
    *count = error == CORRECTED ? of->corrected_dram + of->corrected_sram
                                : of->uncorrected_dram + of->uncorrected_sram;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetMemoryErrorCounter(void *device, unsigned error, unsigned counter,
                                        unsigned location, uint64_t *count)
{
    DEVICE_CALL(device, 0);
    REQUIRE(count && error <= UNCORRECTED && counter <= AGGREGATE, INVALID_ARGUMENT);
    REQUIRE(has_ecc(&call), NOT_SUPPORTED);
    const struct ecc_counts *of = counts(&call, counter);
    if (location == LOCATION_DRAM)
        *count = error == CORRECTED ? of->corrected_dram : of->uncorrected_dram;
    else if (location == LOCATION_SRAM)
        *count = error == CORRECTED ? of->corrected_sram : of->uncorrected_sram;
    else
        return RETURN_NOT_SUPPORTED;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetDetailedEccErrors(void *device, unsigned error, unsigned counter,
                                       struct ecc_error_counts *found)
{
    DEVICE_CALL(device, 0);
    REQUIRE(found && error <= UNCORRECTED && counter <= AGGREGATE, INVALID_ARGUMENT);
    REQUIRE(has_ecc(&call), NOT_SUPPORTED);
    const struct ecc_counts *of = counts(&call, counter);
    memset(found, 0, sizeof(*found));
    found->device_memory = error == CORRECTED ? of->corrected_dram : of->uncorrected_dram;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetSramEccErrorStatus(void *device, struct sram_ecc_status_v1 *status)
{
    DEVICE_CALL(device, 0);
    const struct health *health = &call.gpu->health;
    REQUIRE(status, INVALID_ARGUMENT);
    REQUIRE(status->version == VERSION(struct sram_ecc_status_v1, 1), ARGUMENT_VERSION_MISMATCH);
    REQUIRE(has_ecc(&call) && call.gpu->features.row_remapping, NOT_SUPPORTED);
    memset(status, 0, sizeof(*status));
    status->version = VERSION(struct sram_ecc_status_v1, 1);
    status->aggregate_unc_sec_ded = health->ecc_aggregate.uncorrected_sram;
    status->aggregate_cor = health->ecc_aggregate.corrected_sram;
    status->volatile_unc_sec_ded = health->ecc_volatile.uncorrected_sram;
    status->volatile_cor = health->ecc_volatile.corrected_sram;
    status->aggregate_unc_bucket_other = health->ecc_aggregate.uncorrected_sram;
    status->b_threshold_exceeded = health->sram_threshold_exceeded;
    return RETURN_SUCCESS;
}

API int nvmlDeviceClearEccErrorCounts(void *device, unsigned counter)
{
    DEVICE_CALL(device, 0);
    REQUIRE(counter <= AGGREGATE, INVALID_ARGUMENT);
    REQUIRE(has_ecc(&call), NOT_SUPPORTED);
    memset((void *)counts(&call, counter), 0, sizeof(struct ecc_counts));
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected,
                                  unsigned *pending, unsigned *failure)
{
    DEVICE_CALL(device, 0);
    const struct health *health = &call.gpu->health;
    REQUIRE(corrected && uncorrected && pending && failure, INVALID_ARGUMENT);
    REQUIRE(call.gpu->features.row_remapping, NOT_SUPPORTED);
    *corrected = health->remapped_corrected;
    *uncorrected = health->remapped_uncorrected;
    *pending = health->remap_pending;
    *failure = health->remap_failure;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetRowRemapperHistogram(void *device, struct row_remapper_histogram *found)
{
    DEVICE_CALL(device, 0);
    const struct health *health = &call.gpu->health;
    REQUIRE(found, INVALID_ARGUMENT);
    REQUIRE(call.gpu->features.row_remapping, NOT_SUPPORTED);
    uint32_t used = health->remapped_corrected + health->remapped_uncorrected;
    memset(found, 0, sizeof(*found));
    found->high = used < BANKS ? used : BANKS;
    found->max = BANKS - found->high;
    return RETURN_SUCCESS;
}

static int retired_pages(const struct call *call, unsigned cause, unsigned *count,
                         uint64_t *addresses, uint64_t *times)
{
    const struct health *health = &call->gpu->health;
    REQUIRE(count && cause <= DOUBLE_BIT, INVALID_ARGUMENT);
    REQUIRE(call->gpu->features.page_retirement, NOT_SUPPORTED);
    uint32_t number = cause == SINGLE_BIT ? health->retired_single_bit
                                          : health->retired_double_bit;
    uint32_t room = *count;
    *count = number;
    if (number > room)
        return RETURN_INSUFFICIENT_SIZE;
    for (uint32_t i = 0; addresses && i < number; i++) {
        addresses[i] = (uint64_t)FIRST_PAGE * (i + 1 + cause * health->retired_single_bit);
        if (times)
            times[i] = wall_clock_us() / 1000000u;
    }
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetRetiredPages(void *device, unsigned cause, unsigned *count,
                                  uint64_t *addresses)
{
    DEVICE_CALL(device, 0);
    return retired_pages(&call, cause, count, addresses, NULL);
}

API int nvmlDeviceGetRetiredPages_v2(void *device, unsigned cause, unsigned *count,
                                     uint64_t *addresses, uint64_t *times)
{
    DEVICE_CALL(device, 0);
    return retired_pages(&call, cause, count, addresses, times);
}

API int nvmlDeviceGetRetiredPagesPendingStatus(void *device, unsigned *pending)
{
    DEVICE_CALL(device, 0);
    REQUIRE(pending, INVALID_ARGUMENT);
    REQUIRE(call.gpu->features.page_retirement, NOT_SUPPORTED);
    *pending = call.gpu->health.retirement_pending;
    return RETURN_SUCCESS;
}
