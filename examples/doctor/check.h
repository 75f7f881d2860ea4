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

enum { CHECK_TEXT = 512, CHECK_MOST = 64 };

struct check {
  const char* section;
  const char* name;
  enum check_status status;
  char detail[CHECK_TEXT];
  char remedy[CHECK_TEXT]; /* "" where nothing is to be done */
};

struct checks {
  struct check list[CHECK_MOST];
  int count;
};

/* `remedy` is a text or NULL; the rest makes the detail, as printf does. */
void checks_add(struct checks* checks, const char* section, const char* name,
                enum check_status status, const char* remedy, const char* format, ...);

int checks_count(const struct checks* checks, enum check_status status);
const char* check_status_name(enum check_status status);

/* For people; a section is a heading. */
void checks_print(const struct checks* checks, FILE* file);
/* A JSON array of {section, name, status, detail, remedy}. */
void checks_print_json(const struct checks* checks, FILE* file);

/* ---- The checks, each in the file of its name ---- */

/* Version and what symm_report says. `report` is its JSON, or NULL with the reason in `error`. */
void check_library(struct checks* checks, const char* report, const char* error);
/* CPUs, memory, their limits, huge pages. */
void check_machine(struct checks* checks);
/* System calls and files that symm needs: memfd, fd passing, pidfd, sockets, /proc, open files. */
void check_system(struct checks* checks);
/* Variables of launchers, and what env:// would do with them. */
void check_launcher(struct checks* checks);
/* Two threads, then two processes, meet and all-reduce. */
void check_trials(struct checks* checks);

/* Where this process is a rank that check_trials has started it does its part and does not return.
 */
void trial_run_if_asked(void);

/* A number in a file that holds nothing else; `otherwise` if there is none. */
unsigned long long number_in_file(const char* path, unsigned long long otherwise);
/* The first line of a file, without its newline; 0 if it cannot be read. */
int line_of_file(const char* path, char* line, int size);

#endif
