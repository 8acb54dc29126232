/* The mapped state of a machine, from the first nvmlInit to the last nvmlShutdown. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "stand_in.h"

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t driver_guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t instances_guard = PTHREAD_MUTEX_INITIALIZER;

static struct {
    struct machine *machine; /* NULL while closed */
    int file;
    unsigned users, calls;
    uint32_t loads;
    int devices[MAX_GPUS + 1];
    unsigned device_count;
    bool held[MAX_GPUS];
} session;

/* A container has the state among the driver's files, read-only: what it changes is its own. */
static int open_in_container(void)
{
    glob_t found;
    int file = -1;
    if (glob(STATE_IN_CONTAINERS, 0, NULL, &found) == 0) {
        file = open(found.gl_pathv[0], O_RDONLY | O_CLOEXEC);
        globfree(&found);
    }
    return file;
}

static struct machine *map_state(int *file)
{
    const char *path = getenv(STATE_VARIABLE);
    int sharing = MAP_SHARED;
    struct stat status;
    *file = path && *path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (*file < 0) {
        sharing = MAP_PRIVATE;
        *file = open_in_container();
    }
    if (*file < 0 || fstat(*file, &status)) {
        fprintf(stderr, "stand-in NVML: set " STATE_VARIABLE " (%s) to the state file of a machine\n",
                path ? path : "");
        return NULL;
    }
    struct machine *machine = MAP_FAILED;
    if (status.st_size == sizeof(struct machine))
        machine = mmap(NULL, sizeof(*machine), PROT_READ | PROT_WRITE, sharing, *file, 0);
    if (machine == MAP_FAILED || machine->layout != LAYOUT_DIGEST) {
        fprintf(stderr, "stand-in NVML: %s is no state file of this version: create it anew\n",
                sharing == MAP_SHARED ? path : STATE_IN_CONTAINERS);
        if (machine != MAP_FAILED)
            munmap(machine, sizeof(*machine));
        close(*file);
        return NULL;
    }
    return machine;
}

static int hold(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0)
        session.devices[session.device_count++] = file;
    return file;
}

/* Open the devices, as the driver's library does; a GPU without one is not held. */
static int hold_devices(const struct machine *machine)
{
    char name[32];
    session.device_count = 0;
    if (!machine->device_folder[0])
        return RETURN_SUCCESS;
    if (hold(machine->device_folder, "nvidiactl") < 0)
        return errno == EACCES ? RETURN_NO_PERMISSION : RETURN_DRIVER_NOT_LOADED;
    for (uint32_t i = 0; i < machine->gpu_count; i++) {
        snprintf(name, sizeof(name), "nvidia%u", machine->gpus[i].identity.minor);
        session.held[i] = hold(machine->device_folder, name) >= 0;
    }
    return RETURN_SUCCESS;
}

bool session_holds(const struct machine *machine, uint32_t gpu)
{
    return !machine->device_folder[0] || session.held[gpu];
}

static void wait_for_driver_lock(const struct machine *machine, int file)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!machine->one_lock)
        return;
    fcntl(file, F_OFD_SETLKW, &lock);
    lock.l_type = F_UNLCK;
    fcntl(file, F_OFD_SETLK, &lock);
}

static int open_session(void)
{
    int file = -1;
    struct machine *machine = map_state(&file);
    if (!machine)
        return RETURN_UNKNOWN;
    wait_for_driver_lock(machine, file);
    int result = fault_result(machine, "nvmlInitWithFlags", EVERY_GPU);
    if (!result)
        result = driver_state(machine, machine->driver_loads);
    if (!result && strcmp(machine->driver_version, machine->library_version) != 0)
        result = RETURN_LIB_RM_VERSION_MISMATCH;
    if (!result)
        result = hold_devices(machine);
    if (result) {
        munmap(machine, sizeof(*machine));
        close(file);
        return result;
    }
    session.machine = machine;
    session.file = file;
    session.loads = machine->driver_loads;
    return RETURN_SUCCESS;
}

/* A call that still hangs keeps the mapping: it is then left to the end of the process. */
static void close_session(void)
{
    for (unsigned i = 0; i < session.device_count; i++)
        close(session.devices[i]);
    session.device_count = 0;
    close(session.file);
    if (!session.calls)
        munmap(session.machine, sizeof(*session.machine));
    session.machine = NULL;
}

API int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&guard);
    int result = session.machine ? RETURN_SUCCESS : open_session();
    if (!result)
        session.users++;
    pthread_mutex_unlock(&guard);
    return result;
}

API int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

API int nvmlShutdown(void)
{
    int result = RETURN_UNINITIALIZED;
    pthread_mutex_lock(&guard);
    if (session.machine) {
        result = RETURN_SUCCESS;
        if (--session.users == 0)
            close_session();
    }
    pthread_mutex_unlock(&guard);
    return result;
}

int session_enter(struct call *call)
{
    int result = RETURN_UNINITIALIZED;
    pthread_mutex_lock(&guard);
    if (session.machine) {
        call->machine = session.machine;
        call->file = session.file;
        call->entered = true;
        session.calls++;
        result = driver_state(session.machine, session.loads);
    }
    pthread_mutex_unlock(&guard);
    return result;
}

void session_leave(struct call *call)
{
    pthread_mutex_lock(&guard);
    if (call->entered)
        session.calls--;
    pthread_mutex_unlock(&guard);
}

bool session_is(const struct machine *machine)
{
    pthread_mutex_lock(&guard);
    bool same = session.machine == machine;
    pthread_mutex_unlock(&guard);
    return same;
}

int driver_state(const struct machine *machine, uint32_t loads)
{
    bool same = machine->driver_loaded && machine->driver_loads == loads;
    return same ? RETURN_SUCCESS : RETURN_DRIVER_NOT_LOADED;
}

/* The kernel's lock of the driver: of the open file, so that it excludes other processes too. */
void lock_driver(struct call *call)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    pthread_mutex_lock(&driver_guard);
    fcntl(call->file, F_OFD_SETLKW, &lock);
    call->holds_driver = true;
}

/* The lock of the instances, which Python takes too. It is never held by a call that hangs. */
void lock_instances(struct call *call)
{
    pthread_mutex_lock(&instances_guard);
    flock(call->file, LOCK_EX);
    call->holds_instances = true;
}

void unlock_all(struct call *call)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (call->holds_instances) {
        flock(call->file, LOCK_UN);
        pthread_mutex_unlock(&instances_guard);
    }
    if (call->holds_driver) {
        fcntl(call->file, F_OFD_SETLK, &lock);
        pthread_mutex_unlock(&driver_guard);
    }
}

uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t wall_clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}
