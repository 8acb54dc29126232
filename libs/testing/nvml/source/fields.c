/* nvmlDeviceGetFieldValues: many values in one call, each with a result of its own. */
#include "stand_in.h"

#define ALL_LINKS UINT32_MAX
#define KIB 1024u
#define NVLINK_5 7u
/* The driver that first knows the recovery action. */
#define RECOVERY_ACTION_BRANCH 570

enum {
    ECC_CURRENT = 1, ECC_PENDING, ECC_SINGLE_VOLATILE, ECC_DOUBLE_VOLATILE,
    ECC_SINGLE_AGGREGATE, ECC_DOUBLE_AGGREGATE,
    RETIRED_SINGLE = 29, RETIRED_DOUBLE, RETIRED_PENDING,
    POLICY_POWER = 74, POLICY_RELIABILITY = 79,
    MEMORY_TEMPERATURE = 82, ENERGY, SPEED_COMMON = 90, LINK_COUNT, PCIE_REPLAYS = 94,
    DATA_TX = 138, DATA_RX, RAW_TX, RAW_RX,
    REMAPPED_CORRECTED, REMAPPED_UNCORRECTED, REMAPPED_PENDING, REMAPPED_FAILURE,
    SWITCH_LINK_COUNT = 147,
    LINK_REPLAYS = 161, LINK_RECOVERIES, LINK_CRC, LINK_SPEED, LINK_STATE, LINK_VERSION,
    RESETLESS_MIG = 184, POWER_AVERAGE, POWER_INSTANT, POWER_MINIMUM, POWER_MAXIMUM,
    POWER_DEFAULT, POWER_LIMIT,
    MIG_QUERY_ANY_MODE = 199,
    LINK_TX_BYTES = 202, LINK_RX_BYTES = 204, LINK_RECEIVE_ERRORS = 208,
    RECOVERY_ACTION = 230,
};

/* Counters with a field for each of the first twelve links and one for the sum. */
static const struct counter {
    uint32_t first, later, total;
    size_t offset;
} counters[] = {
    {32, 96, 38, offsetof(struct link, crc_flit_errors)},
    {39, 102, 45, offsetof(struct link, crc_data_errors)},
    {46, 108, 52, offsetof(struct link, replays)},
    {53, 114, 59, offsetof(struct link, recoveries)},
    {148, 154, 160, offsetof(struct link, ecc_data_errors)},
};
#define PER_RANGE 6u

static int number(struct field_value *value, uint32_t is)
{
    value->value_type = VALUE_TYPE_UNSIGNED_INT;
    value->value = is;
    return RETURN_SUCCESS;
}

static int count(struct field_value *value, uint64_t is)
{
    value->value_type = VALUE_TYPE_UNSIGNED_LONG_LONG;
    value->value = is;
    return RETURN_SUCCESS;
}

/* One link, or the sum of all. */
static int link_count(const struct links *links, struct field_value *value, size_t offset,
                      uint32_t unit)
{
    REQUIRE(links->count, NOT_SUPPORTED);
    if (value->scope_id == ALL_LINKS)
        return count(value, sum_links(links, offset) * unit);
    REQUIRE(value->scope_id < links->count, INVALID_ARGUMENT);
    const char *link = (const char *)&links->link[value->scope_id];
    return count(value, *(const uint64_t *)(link + offset) * unit);
}

/* NVLink 5 counts its errors otherwise. */
static int old_link_counter(const struct links *links, struct field_value *value)
{
    REQUIRE(links->count && links->version < NVLINK_5, NOT_SUPPORTED);
    for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++) {
        const struct counter *counter = &counters[i];
        uint32_t id = value->field_id, link = MAX_LINKS;
        if (id == counter->total)
            return count(value, sum_links(links, counter->offset));
        if (id >= counter->first && id < counter->first + PER_RANGE)
            link = id - counter->first;
        else if (id >= counter->later && id < counter->later + PER_RANGE)
            link = id - counter->later + PER_RANGE;
        if (link < links->count)
            return count(value, *(const uint64_t *)((const char *)&links->link[link] +
                                                    counter->offset));
    }
    return RETURN_NOT_SUPPORTED;
}

static int link_field(const struct links *links, struct field_value *value)
{
    bool fifth = links->version >= NVLINK_5;
    REQUIRE(links->count, NOT_SUPPORTED);
    switch (value->field_id) {
    case SPEED_COMMON:
    case LINK_SPEED: return number(value, links->speed_mbps);
    case LINK_COUNT:
    case SWITCH_LINK_COUNT: return number(value, links->count);
    case LINK_VERSION: return number(value, links->version);
    case LINK_STATE:
        REQUIRE(value->scope_id < links->count, INVALID_ARGUMENT);
        return number(value, links->link[value->scope_id].active);
    case DATA_TX:
    case RAW_TX: return link_count(links, value, offsetof(struct link, tx_kib), 1);
    case DATA_RX:
    case RAW_RX: return link_count(links, value, offsetof(struct link, rx_kib), 1);
    case LINK_REPLAYS: return link_count(links, value, offsetof(struct link, replays), 1);
    case LINK_RECOVERIES: return link_count(links, value, offsetof(struct link, recoveries), 1);
    case LINK_CRC: return link_count(links, value, offsetof(struct link, crc_flit_errors), 1);
    case LINK_TX_BYTES:
        REQUIRE(fifth, NOT_SUPPORTED);
        return link_count(links, value, offsetof(struct link, tx_kib), KIB);
    case LINK_RX_BYTES:
        REQUIRE(fifth, NOT_SUPPORTED);
        return link_count(links, value, offsetof(struct link, rx_kib), KIB);
    case LINK_RECEIVE_ERRORS:
        REQUIRE(fifth, NOT_SUPPORTED);
        return link_count(links, value, offsetof(struct link, receive_errors), 1);
    default: return old_link_counter(links, value);
    }
}

static int ecc_field(const struct gpu *gpu, struct field_value *value)
{
    const struct health *health = &gpu->health;
    const struct ecc_counts *recent = &health->ecc_volatile, *ever = &health->ecc_aggregate;
    REQUIRE(gpu->features.ecc, NOT_SUPPORTED);
    if (value->field_id == ECC_CURRENT)
        return number(value, health->ecc_mode);
    if (value->field_id == ECC_PENDING)
        return number(value, health->ecc_mode_pending);
    REQUIRE(health->ecc_mode, NOT_SUPPORTED);
    switch (value->field_id) {
    case ECC_SINGLE_VOLATILE:
        return count(value, recent->corrected_dram + recent->corrected_sram);
    case ECC_DOUBLE_VOLATILE:
        return count(value, recent->uncorrected_dram + recent->uncorrected_sram);
    case ECC_SINGLE_AGGREGATE:
        return count(value, ever->corrected_dram + ever->corrected_sram);
    default:
        return count(value, ever->uncorrected_dram + ever->uncorrected_sram);
    }
}

static int repair_field(const struct gpu *gpu, struct field_value *value)
{
    const struct health *health = &gpu->health;
    bool retirement = value->field_id <= RETIRED_PENDING;
    REQUIRE(retirement ? gpu->features.page_retirement : gpu->features.row_remapping,
            NOT_SUPPORTED);
    switch (value->field_id) {
    case RETIRED_SINGLE: return number(value, health->retired_single_bit);
    case RETIRED_DOUBLE: return number(value, health->retired_double_bit);
    case RETIRED_PENDING: return number(value, health->retirement_pending);
    case REMAPPED_CORRECTED: return number(value, health->remapped_corrected);
    case REMAPPED_UNCORRECTED: return number(value, health->remapped_uncorrected);
    case REMAPPED_PENDING: return number(value, health->remap_pending);
    default: return number(value, health->remap_failure);
    }
}

static int field(const struct call *call, struct field_value *value)
{
    const struct gpu *gpu = call->gpu;
    switch (value->field_id) {
    case ECC_CURRENT ... ECC_DOUBLE_AGGREGATE: return ecc_field(gpu, value);
    case RETIRED_SINGLE ... RETIRED_PENDING:
    case REMAPPED_CORRECTED ... REMAPPED_FAILURE: return repair_field(gpu, value);
    case MEMORY_TEMPERATURE:
        REQUIRE(gpu->features.memory_temperature, NOT_SUPPORTED);
        return number(value, (uint32_t)gpu->readings.memory_temperature_c);
    case POLICY_POWER ... POLICY_RELIABILITY:
        return count(value, gpu->readings.violations_ns[value->field_id - POLICY_POWER]);
    case ENERGY: return count(value, gpu->readings.energy_mj);
    case PCIE_REPLAYS: return number(value, gpu->readings.pcie_replays);
    case RESETLESS_MIG:
        REQUIRE(gpu->features.mig, NOT_SUPPORTED);
        return number(value, gpu->mig.activation == RETURN_SUCCESS);
    case MIG_QUERY_ANY_MODE: return number(value, gpu->features.mig);
    case POWER_AVERAGE:
    case POWER_INSTANT: return number(value, gpu->readings.power_mw);
    case POWER_MINIMUM: return number(value, gpu->limits.power_minimum_mw);
    case POWER_MAXIMUM: return number(value, gpu->limits.power_maximum_mw);
    case POWER_DEFAULT: return number(value, gpu->limits.power_default_mw);
    case POWER_LIMIT: return number(value, gpu->readings.power_limit_mw);
    case RECOVERY_ACTION:
        REQUIRE(driver_branch(call->machine) >= RECOVERY_ACTION_BRANCH, NOT_SUPPORTED);
        return number(value, gpu->health.recovery_action);
    default: return link_field(&gpu->links, value);
    }
}

API int nvmlDeviceGetFieldValues(void *device, int amount, struct field_value *values)
{
    DEVICE_CALL(device, BEFORE_RESET);
    REQUIRE(values && amount > 0, INVALID_ARGUMENT);
    for (int i = 0; i < amount; i++) {
        values[i].timestamp = (int64_t)wall_clock_us();
        values[i].latency_usec = 0;
        values[i].value = 0;
        values[i].nvml_return = (uint32_t)field(&call, &values[i]);
    }
    return RETURN_SUCCESS;
}
