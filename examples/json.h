/* The little JSON that the tools need: strings out, and values of a document by their path in. */
#ifndef SYMM_EXAMPLES_JSON_H
#define SYMM_EXAMPLES_JSON_H

#include <stddef.h>
#include <stdio.h>

/* A quoted, escaped string; null for NULL. Bytes that are not UTF-8 become '?'. */
void json_write_string(FILE* file, const char* text);

/* Where the value at `path` begins, for instance "machine.cpu_level" or "peers.0.rank"; NULL where
 * there is none or the document is malformed on the way there. Keys with dots or escapes cannot be
 * named. */
const char* json_find(const char* document, const char* path);

/* The value at `path` as text: a string unescaped, anything else as it stands. Cut to fit `size`.
 * Returns 0 and writes "" where json_find returns NULL. */
int json_text(const char* document, const char* path, char* buffer, size_t size);

/* The end of the value that starts at `value`; NULL where it is malformed. */
const char* json_skip(const char* value);

#endif
