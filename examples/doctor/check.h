/* What symm-doctor looked at: a list of findings, in the order they are to be shown. */
#ifndef SYMM_DOCTOR_CHECK_H
#define SYMM_DOCTOR_CHECK_H

#include <stdio.h>

enum check_status {
  CHECK_OK,
  CHECK_NOTE, /* as it may be; good to know */
  CHECK_WARN, /* symm works, slower or with a limit */
  CHECK_FAIL  /* symm does not work until this is put right */
};

enum { CHECK_NAME = 32, CHECK_TEXT = 1024, CHECK_MOST = 64 };

struct check {
  const char* section;
  char name[CHECK_NAME];
  enum check_status status;
  char detail[CHECK_TEXT];
  char remedy[CHECK_TEXT]; /* "" where nothing is to be done */
};

struct checks {
  struct check list[CHECK_MOST];
  int count;
};

/* `remedy` is a text or NULL; the rest makes the detail, as printf does. Control characters, which
 * a variable may hold, become '?'. */
void checks_add(struct checks* checks, const char* section, const char* name,
                enum check_status status, const char* remedy, const char* format, ...)
    __attribute__((format(printf, 6, 7)));

/* Puts all of `more` behind what is there. */
void checks_append(struct checks* checks, const struct checks* more);

int checks_count(const struct checks* checks, enum check_status status);
const char* check_status_name(enum check_status status);

/* For people; a section is a heading. */
void checks_print(const struct checks* checks, FILE* file);
/* A JSON array of {section, name, status, detail, remedy}. */
void checks_print_json(const struct checks* checks, FILE* file);

/* ---- The checks, each in the file of its name ---- */

/* Version, and whether there is a report. `report` is symm_report's JSON, or NULL with the reason
 * in `error`. */
void check_library(struct checks* checks, const char* report, const char* error);

/* What of a machine explains why it has no GPUs for symm. */
struct gpu_signs {
  const char* visible_devices; /* CUDA_VISIBLE_DEVICES, NULL where it is not set */
  int pci_devices;             /* NVIDIA's display devices on the PCI bus */
  int kernel_driver;           /* the kernel has NVIDIA's driver */
};
struct gpu_signs read_gpu_signs(void);
/* Driver, GPUs and who reaches whom, as the report has them. */
void check_gpus(struct checks* checks, const char* report, const struct gpu_signs* signs);

/* What switches NCCL's windows off; NULL where it is not set. */
struct nccl_signs {
  const char* win_enable;   /* NCCL_WIN_ENABLE */
  const char* cumem_enable; /* NCCL_CUMEM_ENABLE */
};
struct nccl_signs read_nccl_signs(void);
/* NCCL and its windows, as the report has them. */
void check_nccl(struct checks* checks, const char* report, const struct nccl_signs* signs);

/* CPUs, memory, their limits, huge pages. */
void check_machine(struct checks* checks);
/* System calls and files that symm needs: memfd, fd passing, pidfd, sockets, /proc, open files. */
void check_system(struct checks* checks);

/* What a launcher's variables make of this process. */
struct claim {
  int usable; /* env:// takes them; the rest is 0 otherwise */
  long rank;
  long size;
  int has_address; /* MASTER_ADDR and MASTER_PORT are set */
};
/* Variables of launchers, and what env:// would do with them. `report` may be NULL. */
void check_launcher(struct checks* checks, const char* report, struct claim* claim);
/* Who listens at MASTER_ADDR:MASTER_PORT, unless the ranks have `met` there just now. */
void check_place(struct checks* checks, const struct claim* claim, int met);

/* Two threads, then two processes, meet and all-reduce. */
void check_trials(struct checks* checks);
/* The ranks of the launcher's job meet by env:// and compare what each of them would use. True once
 * they have met. */
int check_job(struct checks* checks);

/* A number in a file that holds nothing else; `otherwise` if there is none. */
unsigned long long number_in_file(const char* path, unsigned long long otherwise);
/* The first line of a file, without its newline; 0 if it cannot be read. */
int line_of_file(const char* path, char* line, int size);

#endif
