/* NVLinks, and the fabric that they form. */
#include <stdio.h>

#include "stand_in.h"

enum { ERROR_REPLAY, ERROR_RECOVERY, ERROR_CRC_FLIT, ERROR_CRC_DATA, ERROR_ECC_DATA };
enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2 };
enum { FIRST_SWITCH_BUS = 5, SWITCHES = 4 };
enum { CAPABILITY_VALID = 5 };

#define LINK_CALL(device, number)                                          \
    DEVICE_CALL(device, 0);                                                \
    REQUIRE(call.gpu->links.count, NOT_SUPPORTED);                         \
    REQUIRE(number < call.gpu->links.count, INVALID_ARGUMENT);             \
    struct link *link = &call.gpu->links.link[number]

uint64_t sum_links(const struct links *links, size_t offset)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < links->count; i++)
        sum += *(const uint64_t *)((const char *)&links->link[i] + offset);
    return sum;
}

API int nvmlDeviceGetNvLinkState(void *device, unsigned number, unsigned *active)
{
    LINK_CALL(device, number);
    REQUIRE(active, INVALID_ARGUMENT);
    *active = link->active;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetNvLinkVersion(void *device, unsigned number, unsigned *version)
{
    LINK_CALL(device, number);
    REQUIRE(version, INVALID_ARGUMENT);
    (void)link;
    *version = call.gpu->links.version;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetNvLinkCapability(void *device, unsigned number, unsigned capability,
                                      unsigned *has)
{
    LINK_CALL(device, number);
    REQUIRE(has && capability <= CAPABILITY_VALID, INVALID_ARGUMENT);
    (void)link;
    *has = 1;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned number, unsigned *type)
{
    LINK_CALL(device, number);
    REQUIRE(type, INVALID_ARGUMENT);
    *type = link->peer ? REMOTE_GPU : REMOTE_SWITCH;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned number, struct pci_info *info)
{
    LINK_CALL(device, number);
    REQUIRE(info, INVALID_ARGUMENT);
    REQUIRE(link->active, NOT_SUPPORTED);
    memset(info, 0, sizeof(*info));
    info->bus = FIRST_SWITCH_BUS + number % SWITCHES;
    if (link->peer) {
        const struct identity *peer = &call.machine->gpus[link->peer - 1].identity;
        info->domain = peer->pci_domain;
        info->bus = peer->pci_bus;
        info->device = peer->pci_device;
        info->pci_device_id = peer->pci_device_id;
        info->pci_sub_system_id = peer->pci_subsystem_id;
    }
    snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy), "%04X:%02X:%02X.0",
             info->domain & 0xffff, info->bus & 0xff, info->device & 0xff);
    snprintf(info->bus_id, sizeof(info->bus_id), "%08X:%02X:%02X.0", info->domain,
             info->bus & 0xff, info->device & 0xff);
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned number, unsigned counter,
                                        uint64_t *count)
{
    LINK_CALL(device, number);
    REQUIRE(count, INVALID_ARGUMENT);
    switch (counter) {
    case ERROR_REPLAY: *count = link->replays; break;
    case ERROR_RECOVERY: *count = link->recoveries; break;
    case ERROR_CRC_FLIT: *count = link->crc_flit_errors; break;
    case ERROR_CRC_DATA: *count = link->crc_data_errors; break;
    case ERROR_ECC_DATA: *count = link->ecc_data_errors; break;
    default: return RETURN_INVALID_ARGUMENT;
    }
    return RETURN_SUCCESS;
}

API int nvmlDeviceResetNvLinkErrorCounters(void *device, unsigned number)
{
    LINK_CALL(device, number);
    link->replays = link->recoveries = link->crc_flit_errors = 0;
    link->crc_data_errors = link->ecc_data_errors = link->receive_errors = 0;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetGpuFabricInfo(void *device, struct fabric_info *info)
{
    DEVICE_CALL(device, 0);
    const struct fabric *fabric = &call.gpu->fabric;
    REQUIRE(info, INVALID_ARGUMENT);
    REQUIRE(call.gpu->features.fabric, NOT_SUPPORTED);
    memcpy(info->cluster_uuid, fabric->cluster_uuid, sizeof(info->cluster_uuid));
    info->status = fabric->status;
    info->clique_id = fabric->clique;
    info->state = fabric->state;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric_info_v2 *info)
{
    DEVICE_CALL(device, 0);
    const struct fabric *fabric = &call.gpu->fabric;
    REQUIRE(info, INVALID_ARGUMENT);
    bool third = info->version == VERSION(struct fabric_info_v3, 3);
    REQUIRE(third || info->version == VERSION(struct fabric_info_v2, 2),
            ARGUMENT_VERSION_MISMATCH);
    REQUIRE(call.gpu->features.fabric, NOT_SUPPORTED);
    memcpy(info->cluster_uuid, fabric->cluster_uuid, sizeof(info->cluster_uuid));
    info->status = fabric->status;
    info->clique_id = fabric->clique;
    info->state = fabric->state;
    info->health_mask = fabric->health_mask;
    if (third)
        ((struct fabric_info_v3 *)info)->health_summary = (uint8_t)fabric->health_summary;
    return RETURN_SUCCESS;
}
