/* What may hang, die or leave something behind in its process is done by a process of its own: this
 * program again, told by the environment which part it is. */
#ifndef SYMM_DOCTOR_PART_H
#define SYMM_DOCTOR_PART_H

#include "check.h"

enum { PART_SAID = 1 << 16 };

/* Starts one process for each of `parts`, waits for all, and collects what they say into `said`
 * (malloc'ed, ended by an empty text). `address` is handed to each. "" in `failure`, or how the
 * first of them that did not end well did end. */
char* parts_run(const char* const* parts, int count, const char* address, char* failure);

/* The same for one part that says findings, which it adds to `checks` under `section`. */
void part_run_findings(struct checks* checks, const char* section, const char* part);

/* In a part: says a text, up to its NUL, or all findings. False if nobody can hear it. */
int part_say(const char* text);
int part_say_findings(const struct checks* checks);

/* NULL, or the part that this process is, with the address that it was handed. */
const char* part_of_this_process(const char** address);

/* What the parts do; each gives its process's exit status. */
int trial_part(const char* part, const char* address); /* "0", "1" or "threads" */
int place_part(void);                                  /* "place" */
int job_part(void);                                    /* "job" */

double now_ms(void);

#endif
