/* What happens in every call: handles are resolved, faults and hangs take effect. */
#include "stand_in.h"

#define HANDLE_MARK 0x4e56u

/* Nobody reads memory through a handle, so a handle is a number: what it names, and its kind. */
static void *make_handle(enum handle_kind kind, uint32_t gpu, uint32_t serial)
{
    uint64_t number = (uint64_t)HANDLE_MARK << 48 | (uint64_t)kind << 40 | (uint64_t)gpu << 32;
    return (void *)(uintptr_t)(number | serial);
}

void *device_handle(uint32_t gpu)
{
    return make_handle(HANDLE_DEVICE, gpu, 0);
}

void *mig_handle(const struct call *call, const struct compute_instance *instance)
{
    return make_handle(HANDLE_DEVICE, call->index, instance->serial);
}

void *gpu_instance_handle(const struct call *call, const struct gpu_instance *instance)
{
    return make_handle(HANDLE_GPU_INSTANCE, call->index, instance->serial);
}

void *compute_instance_handle(const struct call *call, const struct compute_instance *instance)
{
    return make_handle(HANDLE_COMPUTE_INSTANCE, call->index, instance->serial);
}

int fault_result(const struct machine *machine, const char *function, uint32_t gpu)
{
    for (uint32_t i = 0; i < machine->fault_count; i++) {
        const struct fault *fault = &machine->faults[i];
        bool concerned = fault->gpu == EVERY_GPU || fault->gpu == gpu;
        if (concerned && strcmp(fault->function, function) == 0)
            return (int)fault->result;
    }
    return RETURN_SUCCESS;
}

bool call_is_stale(const struct call *call)
{
    return !session_is(call->machine);
}

void call_enter(struct call *call, const char *function)
{
    call->index = EVERY_GPU;
    call->result = session_enter(call);
    if (call->result)
        return;
    if (call->machine->one_lock)
        lock_driver(call);
    call->result = fault_result(call->machine, function, EVERY_GPU);
}

/* Block while the GPU hangs. */
static void wait_while_hung(struct call *call)
{
    volatile struct health *health = &call->gpu->health;
    if (monotonic_ns() >= health->hang_until)
        return;
    __atomic_add_fetch(&call->gpu->health.hung_calls, 1, __ATOMIC_SEQ_CST);
    while (monotonic_ns() < health->hang_until) {
        if (call_is_stale(call)) {
            call->result = RETURN_UNINITIALIZED;
            return;
        }
        pause_briefly();
    }
}

void call_gpu(struct call *call, const char *function, uint32_t index, unsigned accepts)
{
    call->index = index;
    call->gpu = &call->machine->gpus[index];
    wait_while_hung(call);
    if (call->result)
        return;
    int condition = (int)call->gpu->health.condition;
    if (condition == RETURN_RESET_REQUIRED && (accepts & BEFORE_RESET))
        condition = RETURN_SUCCESS;
    call->result = condition ? condition : fault_result(call->machine, function, index);
    if (!call->result && (accepts & INSTANCES))
        lock_instances(call);
}

static struct gpu_instance *find_gpu_instance(struct gpu *gpu, uint32_t serial)
{
    for (int i = 0; i < MAX_INSTANCES; i++)
        if (serial && gpu->mig.gpu_instances[i].serial == serial)
            return &gpu->mig.gpu_instances[i];
    return NULL;
}

static struct compute_instance *find_compute_instance(struct gpu *gpu, uint32_t serial)
{
    for (int i = 0; i < MAX_INSTANCES; i++)
        if (serial && gpu->mig.compute_instances[i].serial == serial)
            return &gpu->mig.compute_instances[i];
    return NULL;
}

struct gpu_instance *gpu_instance_of(struct gpu *gpu, const struct compute_instance *instance)
{
    return find_gpu_instance(gpu, instance->gpu_instance);
}

/* Find the instance that a handle names; what was destroyed is no longer valid. */
static int resolve_instance(struct call *call, enum handle_kind kind, uint32_t serial,
                            unsigned accepts)
{
    if (kind == HANDLE_DEVICE && !serial)
        return RETURN_SUCCESS;
    if (kind == HANDLE_GPU_INSTANCE) {
        call->gpu_instance = find_gpu_instance(call->gpu, serial);
        return call->gpu_instance ? RETURN_SUCCESS : RETURN_INVALID_ARGUMENT;
    }
    if (kind == HANDLE_DEVICE && !(accepts & MIG_DEVICE))
        return RETURN_NOT_SUPPORTED;
    call->compute_instance = find_compute_instance(call->gpu, serial);
    if (!call->compute_instance)
        return RETURN_INVALID_ARGUMENT;
    call->gpu_instance = gpu_instance_of(call->gpu, call->compute_instance);
    return RETURN_SUCCESS;
}

void call_handle(struct call *call, const char *function, const void *handle,
                 enum handle_kind kind, unsigned accepts)
{
    uint64_t number = (uint64_t)(uintptr_t)handle;
    uint32_t gpu = number >> 32 & 0xff, serial = number & UINT32_MAX;
    call_enter(call, function);
    if (call->result)
        return;
    bool valid = number >> 48 == HANDLE_MARK && (number >> 40 & 0xff) == (uint64_t)kind;
    if (!valid || gpu >= call->machine->gpu_count) {
        call->result = RETURN_INVALID_ARGUMENT;
        return;
    }
    if (serial)
        accepts |= INSTANCES;
    call_gpu(call, function, gpu, accepts);
    if (!call->result)
        call->result = resolve_instance(call, kind, serial, accepts);
}

void call_leave(struct call *call)
{
    unlock_all(call);
    session_leave(call);
}

int copy_text(const char *text, char *buffer, uint32_t size)
{
    size_t length = strlen(text) + 1;
    if (!buffer)
        return RETURN_INVALID_ARGUMENT;
    if (length > size)
        return RETURN_INSUFFICIENT_SIZE;
    memcpy(buffer, text, length);
    return RETURN_SUCCESS;
}
