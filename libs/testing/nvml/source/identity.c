/* What a GPU is. */
#include <stdio.h>

#include "stand_in.h"

#define TEXT(function, field)                                              \
    API int function(void *device, char *text, unsigned size)              \
    {                                                                      \
        DEVICE_CALL(device, BEFORE_RESET);                                 \
        return copy_text(call.gpu->identity.field, text, size);            \
    }

#define NUMBER(function, type, field)                                      \
    API int function(void *device, type *value)                            \
    {                                                                      \
        DEVICE_CALL(device, BEFORE_RESET);                                 \
        REQUIRE(value, INVALID_ARGUMENT);                                  \
        *value = call.gpu->field;                                          \
        return RETURN_SUCCESS;                                             \
    }

TEXT(nvmlDeviceGetSerial, serial)
TEXT(nvmlDeviceGetBoardPartNumber, board_part)
TEXT(nvmlDeviceGetVbiosVersion, vbios)
NUMBER(nvmlDeviceGetMinorNumber, unsigned, identity.minor)
NUMBER(nvmlDeviceGetArchitecture, unsigned, identity.architecture)
NUMBER(nvmlDeviceGetBrand, unsigned, identity.brand)
NUMBER(nvmlDeviceGetNumGpuCores, unsigned, identity.cores)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, limits.pcie_generation)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, limits.pcie_generation)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, limits.pcie_width)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, readings.persistence_mode)

API int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    DEVICE_CALL(device, MIG_DEVICE | BEFORE_RESET);
    char text[96];
    if (!call.compute_instance)
        return copy_text(call.gpu->identity.name, name, size);
    mig_name(call.gpu, call.compute_instance, text);
    return copy_text(text, name, size);
}

API int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size)
{
    DEVICE_CALL(device, MIG_DEVICE | BEFORE_RESET);
    char text[64];
    if (!call.compute_instance)
        return copy_text(call.gpu->identity.uuid, uuid, size);
    mig_uuid(call.gpu, call.gpu_instance->id, call.compute_instance->id, text);
    return copy_text(text, uuid, size);
}

API int nvmlDeviceGetIndex(void *device, unsigned *index)
{
    DEVICE_CALL(device, MIG_DEVICE | BEFORE_RESET);
    REQUIRE(index, INVALID_ARGUMENT);
    *index = call.index;
    if (!call.compute_instance)
        return RETURN_SUCCESS;
    struct compute_instance *order[MAX_INSTANCES];
    int count = ordered_instances(call.gpu, order);
    for (int i = 0; i < count; i++)
        if (order[i] == call.compute_instance)
            *index = (unsigned)i;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info)
{
    DEVICE_CALL(device, BEFORE_RESET);
    const struct identity *identity = &call.gpu->identity;
    REQUIRE(info, INVALID_ARGUMENT);
    memset(info, 0, sizeof(*info));
    info->domain = identity->pci_domain;
    info->bus = identity->pci_bus;
    info->device = identity->pci_device;
    info->pci_device_id = identity->pci_device_id;
    info->pci_sub_system_id = identity->pci_subsystem_id;
    snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy), "%04X:%02X:%02X.0",
             info->domain & 0xffff, info->bus & 0xff, info->device & 0xff);
    snprintf(info->bus_id, sizeof(info->bus_id), "%08X:%02X:%02X.0", info->domain,
             info->bus & 0xff, info->device & 0xff);
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    DEVICE_CALL(device, MIG_DEVICE | BEFORE_RESET);
    REQUIRE(major && minor, INVALID_ARGUMENT);
    *major = (int)call.gpu->identity.compute_major;
    *minor = (int)call.gpu->identity.compute_minor;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetBoardId(void *device, unsigned *id)
{
    DEVICE_CALL(device, BEFORE_RESET);
    REQUIRE(id, INVALID_ARGUMENT);
    *id = call.gpu->identity.pci_domain << 16 | call.gpu->identity.pci_bus << 8;
    return RETURN_SUCCESS;
}

API int nvmlDeviceSetPersistenceMode(void *device, unsigned mode)
{
    DEVICE_CALL(device, 0);
    REQUIRE(mode <= 1, INVALID_ARGUMENT);
    call.gpu->readings.persistence_mode = mode;
    return RETURN_SUCCESS;
}
