/* The driver, and what there is. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "stand_in.h"

int driver_branch(const struct machine *machine)
{
    return atoi(machine->driver_version);
}

API int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    SYSTEM_CALL();
    return copy_text(call.machine->driver_version, version, size);
}

API int nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    SYSTEM_CALL();
    char text[80];
    snprintf(text, sizeof(text), "%d.%s", call.machine->cuda_version / 1000,
             call.machine->library_version);
    return copy_text(text, version, size);
}

/* The vendor's library opens libcuda by name: where the loader does not find it, and the process has
 * not opened it by its path, this function has no answer. */
API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    SYSTEM_CALL();
    REQUIRE(version, INVALID_ARGUMENT);
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(library, NOT_FOUND);
    dlclose(library);
    *version = call.machine->cuda_version;
    return RETURN_SUCCESS;
}

/* The first form needs no libcuda: the library knows the version that it was made with. */
API int nvmlSystemGetCudaDriverVersion(int *version)
{
    SYSTEM_CALL();
    REQUIRE(version, INVALID_ARGUMENT);
    *version = call.machine->cuda_version;
    return RETURN_SUCCESS;
}

API int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
    SYSTEM_CALL();
    char path[32], text[1024];
    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    REQUIRE(file, NOT_FOUND);
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = 0;
    return copy_text(text, name, size);
}

API const char *nvmlErrorString(int code)
{
    switch (code) {
    case RETURN_SUCCESS: return "Success";
    case RETURN_GPU_IS_LOST: return "GPU is lost";
    case RETURN_RESET_REQUIRED: return "GPU requires restart";
    default: return "Unknown Error";
    }
}

API int nvmlDeviceGetCount_v2(unsigned *count)
{
    SYSTEM_CALL();
    REQUIRE(count, INVALID_ARGUMENT);
    *count = call.machine->gpu_count;
    return RETURN_SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    SYSTEM_CALL();
    REQUIRE(device && index < call.machine->gpu_count, INVALID_ARGUMENT);
    call_gpu(&call, __func__, index, BEFORE_RESET);
    CHECKED;
    *device = device_handle(index);
    return RETURN_SUCCESS;
}

/* The MIG device with this uuid, or NULL. */
static void *find_mig(struct call *call, const char *uuid)
{
    for (uint32_t i = 0; i < MAX_INSTANCES; i++) {
        const struct compute_instance *compute = &call->gpu->mig.compute_instances[i];
        const struct gpu_instance *instance = gpu_instance_of(call->gpu, compute);
        char text[64];
        if (!compute->serial || !instance)
            continue;
        mig_uuid(call->gpu, instance->id, compute->id, text);
        if (strcmp(text, uuid) == 0)
            return mig_handle(call, compute);
    }
    return NULL;
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    SYSTEM_CALL();
    REQUIRE(uuid && device, INVALID_ARGUMENT);
    for (uint32_t i = 0; i < call.machine->gpu_count; i++) {
        call.index = i;
        call.gpu = &call.machine->gpus[i];
        if (strcmp(call.gpu->identity.uuid, uuid) == 0) {
            call_gpu(&call, __func__, i, BEFORE_RESET);
            CHECKED;
            *device = device_handle(i);
            return RETURN_SUCCESS;
        }
        *device = find_mig(&call, uuid);
        if (*device)
            return RETURN_SUCCESS;
    }
    return RETURN_NOT_FOUND;
}

API int nvmlDeviceGetHandleBySerial(const char *serial, void **device)
{
    SYSTEM_CALL();
    REQUIRE(serial && device, INVALID_ARGUMENT);
    for (uint32_t i = 0; i < call.machine->gpu_count; i++) {
        if (strcmp(call.machine->gpus[i].identity.serial, serial) != 0)
            continue;
        call_gpu(&call, __func__, i, BEFORE_RESET);
        CHECKED;
        *device = device_handle(i);
        return RETURN_SUCCESS;
    }
    return RETURN_NOT_FOUND;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device)
{
    SYSTEM_CALL();
    unsigned domain, bus, slot;
    REQUIRE(address && device, INVALID_ARGUMENT);
    REQUIRE(sscanf(address, "%x:%x:%x", &domain, &bus, &slot) == 3, INVALID_ARGUMENT);
    for (uint32_t i = 0; i < call.machine->gpu_count; i++) {
        const struct identity *identity = &call.machine->gpus[i].identity;
        if (identity->pci_domain != domain || identity->pci_bus != bus ||
            identity->pci_device != slot)
            continue;
        call_gpu(&call, __func__, i, BEFORE_RESET);
        CHECKED;
        *device = device_handle(i);
        return RETURN_SUCCESS;
    }
    return RETURN_NOT_FOUND;
}
