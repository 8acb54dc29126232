/* Events, such as XID errors: a set of them is registered, then waited for. */
#include <stdlib.h>

#include "stand_in.h"

#define SUPPORTED                                                                      \
    (EVENT_TYPE_SINGLE_BIT_ECC | EVENT_TYPE_DOUBLE_BIT_ECC | EVENT_TYPE_PSTATE |       \
     EVENT_TYPE_XID | EVENT_TYPE_CLOCK)

struct event_set {
    uint64_t next;             /* the first event not looked at */
    uint64_t kinds[MAX_GPUS];  /* what is registered, */
    uint64_t since[MAX_GPUS];  /* and from which event on */
};

API int nvmlDeviceGetSupportedEventTypes(void *device, uint64_t *kinds)
{
    DEVICE_CALL(device, 0);
    REQUIRE(kinds, INVALID_ARGUMENT);
    *kinds = SUPPORTED;
    return RETURN_SUCCESS;
}

API int nvmlEventSetCreate(struct event_set **set)
{
    SYSTEM_CALL();
    REQUIRE(set, INVALID_ARGUMENT);
    *set = calloc(1, sizeof(**set));
    REQUIRE(*set, MEMORY);
    (*set)->next = call.machine->event_count;
    return RETURN_SUCCESS;
}

API int nvmlDeviceRegisterEvents(void *device, uint64_t kinds, struct event_set *set)
{
    DEVICE_CALL(device, 0);
    REQUIRE(set, INVALID_ARGUMENT);
    REQUIRE(!(kinds & ~(uint64_t)SUPPORTED), NOT_SUPPORTED);
    if (!set->kinds[call.index])
        set->since[call.index] = call.machine->event_count;
    set->kinds[call.index] |= kinds;
    return RETURN_SUCCESS;
}

static bool take_event(const struct call *call, struct event_set *set, struct event_data *data)
{
    uint64_t count = __atomic_load_n(&call->machine->event_count, __ATOMIC_ACQUIRE);
    if (count > MAX_EVENTS && set->next < count - MAX_EVENTS)
        set->next = count - MAX_EVENTS; /* older ones are overwritten */
    while (set->next < count) {
        uint64_t number = set->next++;
        const struct event *event = &call->machine->events[number % MAX_EVENTS];
        if (number < set->since[event->gpu] || !(event->type & set->kinds[event->gpu]))
            continue;
        *data = (struct event_data){device_handle(event->gpu), event->type, event->data,
                                    event->gpu_instance, event->compute_instance};
        return true;
    }
    return false;
}

static bool lost_one(const struct call *call, const struct event_set *set)
{
    for (uint32_t i = 0; i < call->machine->gpu_count; i++)
        if (set->kinds[i] && call->machine->gpus[i].health.condition == RETURN_GPU_IS_LOST)
            return true;
    return false;
}

/* Waits without the driver's lock, so that other calls go on. */
API int nvmlEventSetWait_v2(struct event_set *set, struct event_data *data, unsigned timeout_ms)
{
    BEGIN;
    uint64_t deadline = monotonic_ns() + timeout_ms * 1000000ull;
    call.result = session_enter(&call);
    CHECKED;
    call.result = fault_result(call.machine, __func__, EVERY_GPU);
    CHECKED;
    REQUIRE(set && data, INVALID_ARGUMENT);
    for (;; pause_briefly()) {
        REQUIRE(!call_is_stale(&call), UNINITIALIZED);
        REQUIRE(call.machine->driver_loaded, DRIVER_NOT_LOADED);
        if (take_event(&call, set, data))
            return RETURN_SUCCESS;
        REQUIRE(!lost_one(&call, set), GPU_IS_LOST);
        REQUIRE(monotonic_ns() < deadline, TIMEOUT);
    }
}

API int nvmlEventSetFree(struct event_set *set)
{
    SYSTEM_CALL();
    REQUIRE(set, INVALID_ARGUMENT);
    free(set);
    return RETURN_SUCCESS;
}
