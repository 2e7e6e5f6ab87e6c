/* NVIDIA's management library as pynvml loads it, for one made-up GPU that always draws 300 W.

   Its memory in use is that of the processes whose environment shows them the GPU: the sum of their resident memory. So it
   rises when a server starts and falls when it ends, as on a GPU. */

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SUCCESS 0
#define NOT_FOUND 6
#define SHOWN "CUDA_VISIBLE_DEVICES=0"

typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;

static int gpu;

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    *handle = &gpu;
    return strcmp(uuid, GPU_KEY) ? NOT_FOUND : SUCCESS;
}

/* Whether the process was started with the GPU shown to it. */
static int shown(const char *pid) {
    static char text[1 << 17];
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    for (char *variable = text; variable < text + length; variable += strlen(variable) + 1)
        if (!strcmp(variable, SHOWN)) return 1;
    return 0;
}

static unsigned long long resident(const char *pid) {
    char path[64];
    unsigned long long size = 0, pages = 0;
    snprintf(path, sizeof path, "/proc/%.20s/statm", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%llu %llu", &size, &pages) != 2) pages = 0;
    fclose(file);
    return pages << 12;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory *found) {
    (void)handle;
    DIR *processes = opendir("/proc");
    found->total = 80ULL << 30;
    found->used = 0;
    for (struct dirent *entry; processes && (entry = readdir(processes));)
        if (isdigit((unsigned char)entry->d_name[0]) && shown(entry->d_name)) found->used += resident(entry->d_name);
    if (processes) closedir(processes);
    found->free = found->total - found->used;
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
    (void)handle;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *millijoules = 300ULL * (now.tv_sec * 1000ULL + now.tv_nsec / 1000000);
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, utilization *found) {
    (void)handle;
    found->gpu = 90;
    found->memory = 10;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { (void)handle; *milliwatts = 300000; return SUCCESS; }
int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *mhz) { (void)handle; *mhz = 1900 + kind; return SUCCESS; }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *c) { (void)handle; *c = 50 + sensor; return SUCCESS; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *mask) {
    (void)handle;
    *mask = 0;
    return SUCCESS;
}
const char *nvmlErrorString(int code) { return code == NOT_FOUND ? "Not Found" : "Success"; }
