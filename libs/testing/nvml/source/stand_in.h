/* What the parts of the library share. `layout.h` is generated from Python. */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "layout.h"

#ifndef API
#define API __attribute__((visibility("default")))
#endif

#define VERSION(kind, number) ((uint32_t)(sizeof(kind) | ((number) << 24)))

enum handle_kind { HANDLE_DEVICE = 1, HANDLE_GPU_INSTANCE, HANDLE_COMPUTE_INSTANCE };

/* What a call accepts. */
enum {
    MIG_DEVICE = 1,   /* the handle of a MIG device too */
    BEFORE_RESET = 2, /* a GPU that must be reset first */
    INSTANCES = 4,    /* reads or changes the instances: nobody else does meanwhile */
};

/* One call while it runs. The macros below begin it; leaving the function ends it. */
struct call {
    int result;
    bool entered, holds_driver, holds_instances;
    struct machine *machine;
    int file;
    struct gpu *gpu;
    uint32_t index;
    struct gpu_instance *gpu_instance;
    struct compute_instance *compute_instance;
};

void call_enter(struct call *call, const char *function);
void call_gpu(struct call *call, const char *function, uint32_t index, unsigned accepts);
void call_handle(struct call *call, const char *function, const void *handle,
                 enum handle_kind kind, unsigned accepts);
void call_leave(struct call *call);
bool call_is_stale(const struct call *call);

#define BEGIN struct call call __attribute__((cleanup(call_leave))) = {0}
#define CHECKED do { if (call.result) return call.result; } while (0)

#define SYSTEM_CALL() BEGIN; call_enter(&call, __func__); CHECKED
#define DEVICE_CALL(handle, accepts) \
    BEGIN; call_handle(&call, __func__, handle, HANDLE_DEVICE, accepts); CHECKED
#define GPU_INSTANCE_CALL(handle) \
    BEGIN; call_handle(&call, __func__, handle, HANDLE_GPU_INSTANCE, INSTANCES); CHECKED
#define COMPUTE_INSTANCE_CALL(handle) \
    BEGIN; call_handle(&call, __func__, handle, HANDLE_COMPUTE_INSTANCE, INSTANCES); CHECKED
#define REQUIRE(condition, code) do { if (!(condition)) return RETURN_##code; } while (0)

void *device_handle(uint32_t gpu);
void *mig_handle(const struct call *call, const struct compute_instance *instance);
void *gpu_instance_handle(const struct call *call, const struct gpu_instance *instance);
void *compute_instance_handle(const struct call *call, const struct compute_instance *instance);

/* The session: the mapped state, from the first nvmlInit to the last nvmlShutdown. */
int session_enter(struct call *call);
void session_leave(struct call *call);
bool session_is(const struct machine *machine);
bool session_holds(const struct machine *machine, uint32_t gpu);
int driver_state(const struct machine *machine, uint32_t loads);
int fault_result(const struct machine *machine, const char *function, uint32_t gpu);
void lock_driver(struct call *call);
void lock_instances(struct call *call);
void unlock_all(struct call *call);

uint64_t monotonic_ns(void);
uint64_t wall_clock_us(void);
void pause_briefly(void);
int copy_text(const char *text, char *buffer, uint32_t size);

/* Links of a GPU, summed or one. */
int driver_branch(const struct machine *machine);
uint64_t sum_links(const struct links *links, size_t offset);

/* MIG. */
const struct mig_profile *profile_of(const struct gpu *gpu, const struct gpu_instance *instance);
struct gpu_instance *gpu_instance_of(struct gpu *gpu, const struct compute_instance *instance);
int ordered_instances(struct gpu *gpu, struct compute_instance *order[MAX_INSTANCES]);
void mig_uuid(const struct gpu *gpu, uint32_t gpu_instance, uint32_t compute_instance,
              char text[64]);
void mig_name(const struct gpu *gpu, const struct compute_instance *instance, char text[96]);
bool instance_is_used(const struct gpu *gpu, uint32_t gpu_instance, uint32_t compute_instance);
uint32_t compute_multiprocessors(const struct gpu *gpu, const struct mig_profile *profile,
                                 uint32_t slices);
