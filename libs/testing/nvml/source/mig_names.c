/* How instances are named and ordered. */
#include <stdio.h>

#include "stand_in.h"

const struct mig_profile *profile_of(const struct gpu *gpu, const struct gpu_instance *instance)
{
    return &gpu->mig.profiles[instance->profile];
}

/* A compute instance of all slices has all multiprocessors of its GPU instance. */
uint32_t compute_multiprocessors(const struct gpu *gpu, const struct mig_profile *profile,
                                 uint32_t slices)
{
    if (slices == profile->slices)
        return profile->multiprocessors;
    for (uint32_t i = 0; i < gpu->mig.profile_count; i++)
        if (gpu->mig.profiles[i].slices == 1)
            return gpu->mig.profiles[i].multiprocessors * slices;
    return profile->multiprocessors * slices / profile->slices;
}

void mig_name(const struct gpu *gpu, const struct compute_instance *instance, char text[96])
{
    const struct mig *mig = &gpu->mig;
    const struct mig_profile *profile = NULL;
    for (int i = 0; i < MAX_INSTANCES; i++)
        if (mig->gpu_instances[i].serial == instance->gpu_instance)
            profile = profile_of(gpu, &mig->gpu_instances[i]);
    if (!profile || instance->slices == profile->slices)
        snprintf(text, 96, "%.48s MIG %.16s", gpu->identity.name, profile ? profile->name : "");
    else
        snprintf(text, 96, "%.48s MIG %uc.%.16s", gpu->identity.name, instance->slices,
                 profile->name);
}

static uint64_t digest(const char *text, uint64_t basis)
{
    for (; *text; text++)
        basis = (basis ^ (unsigned char)*text) * 1099511628211u;
    return basis ^ basis >> 29;
}

/* The same place on the same GPU always has the same uuid. */
void mig_uuid(const struct gpu *gpu, uint32_t gpu_instance, uint32_t compute_instance,
              char text[64])
{
    char place[96];
    snprintf(place, sizeof(place), "%s/%u/%u", gpu->identity.uuid, gpu_instance,
             compute_instance);
    uint64_t high = digest(place, 14695981039346656037u), low = digest(place, high);
    snprintf(text, 64, "MIG-%08x-%04x-5%03x-%04x-%012llx", (unsigned)(high >> 32),
             (unsigned)(high >> 16 & 0xffff), (unsigned)(high & 0xfff),
             (unsigned)(0x8000 | (low >> 48 & 0x3fff)),
             (unsigned long long)(low & 0xffffffffffffu));
}

static bool comes_before(struct gpu *gpu, const struct compute_instance *one,
                         const struct compute_instance *other)
{
    uint32_t first = gpu_instance_of(gpu, one)->id, second = gpu_instance_of(gpu, other)->id;
    return first < second || (first == second && one->id < other->id);
}

/* The compute instances, which are the MIG devices, in the order of their indices. */
int ordered_instances(struct gpu *gpu, struct compute_instance *order[MAX_INSTANCES])
{
    int count = 0;
    for (int i = 0; i < MAX_INSTANCES; i++) {
        struct compute_instance *instance = &gpu->mig.compute_instances[i];
        int place = count;
        if (!instance->serial || !gpu_instance_of(gpu, instance))
            continue;
        for (; place > 0 && comes_before(gpu, instance, order[place - 1]); place--)
            order[place] = order[place - 1];
        order[place] = instance;
        count++;
    }
    return count;
}
