/* What symm-perf --help says; in pieces, since C99 has no longer strings. */
#ifndef SYMM_PERF_OPTIONS_HELP_H
#define SYMM_PERF_OPTIONS_HELP_H

extern const char* const options_help[2];

#endif
