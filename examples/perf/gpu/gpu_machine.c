#include "gpu_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

static void read_driver_version(char* text, size_t size) {
  FILE* file = fopen("/sys/module/nvidia/version", "r");
  text[0] = '\0';
  if (file != NULL) {
    if (fgets(text, (int)size, file) == NULL) {
      text[0] = '\0';
    }
    fclose(file);
  }
  text[strcspn(text, "\n")] = '\0';
}

int gpu_machine_read(struct gpu_machine* machine, char* reason, size_t size) {
  const char* nvls = getenv("NCCL_NVLS_ENABLE");
  int version = 0;
  memset(machine, 0, sizeof *machine);
  const struct gpu_driver* driver = gpu_driver_get(reason, size);
  if (driver == NULL) {
    return 0;
  }
  const int error = driver->device_count(&machine->count);
  if (error != 0 || machine->count == 0) {
    snprintf(reason, size, "%s", error != 0 ? gpu_error_text(error) : "the driver sees none");
    return 0;
  }
  machine->count = machine->count < GPU_MACHINE_MAX ? machine->count : GPU_MACHINE_MAX;
  for (int i = 0; i < machine->count; ++i) {
    int device = 0;
    if (driver->device_get(&device, i) != 0 ||
        driver->device_name(machine->names[i], sizeof machine->names[i], device) != 0) {
      snprintf(machine->names[i], sizeof machine->names[i], "unknown");
    }
  }
  if (driver->version(&version) == 0) {
    snprintf(machine->cuda, sizeof machine->cuda, "%d.%d", version / 1000, version / 10 % 100);
  }
  read_driver_version(machine->driver, sizeof machine->driver);
  machine->multicast_off = nvls != NULL && strcmp(nvls, "0") == 0;
  return 1;
}

void gpu_machine_add_floor(struct gpu_machine* machine, const char* line) {
  struct gpu_floor floor;
  if (machine->floor_count < GPU_MACHINE_MAX_FLOORS &&
      sscanf(line, "%31s %lf", floor.name, &floor.value) == 2) {
    machine->floors[machine->floor_count++] = floor;
  }
}

double gpu_machine_floor(const struct gpu_machine* machine, const char* name) {
  for (int i = 0; i < machine->floor_count; ++i) {
    if (strcmp(machine->floors[i].name, name) == 0) {
      return machine->floors[i].value;
    }
  }
  return 0;
}
