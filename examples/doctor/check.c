#include "check.h"

#include <stdarg.h>
#include <string.h>

#include "../json.h"

static void make_printable(char* text) {
  for (; *text != '\0'; ++text) {
    if ((unsigned char)*text < 0x20 || *text == 0x7f) {
      *text = '?';
    }
  }
}

void checks_add(struct checks* checks, const char* section, const char* name,
                enum check_status status, const char* remedy, const char* format, ...) {
  if (checks->count == CHECK_MOST) {
    return;
  }
  struct check* check = &checks->list[checks->count++];
  check->section = section;
  snprintf(check->name, sizeof check->name, "%s", name);
  check->status = status;
  snprintf(check->remedy, sizeof check->remedy, "%s", remedy != NULL ? remedy : "");
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(check->detail, sizeof check->detail, format, arguments);
  va_end(arguments);
  make_printable(check->remedy);
  make_printable(check->detail);
}

void checks_append(struct checks* checks, const struct checks* more) {
  for (int i = 0; i < more->count && checks->count < CHECK_MOST; ++i) {
    checks->list[checks->count++] = more->list[i];
  }
}

int checks_count(const struct checks* checks, enum check_status status) {
  int count = 0;
  for (int i = 0; i < checks->count; ++i) {
    count += checks->list[i].status == status;
  }
  return count;
}

const char* check_status_name(enum check_status status) {
  static const char* const names[] = {"ok", "note", "warn", "FAIL"};
  return names[status];
}

void checks_print(const struct checks* checks, FILE* file) {
  const char* section = "";
  for (int i = 0; i < checks->count; ++i) {
    const struct check* check = &checks->list[i];
    if (strcmp(section, check->section) != 0) {
      section = check->section;
      fprintf(file, "\n%s\n", section);
    }
    fprintf(file, "  %-4s  %-18s  %s\n", check_status_name(check->status), check->name,
            check->detail);
    if (check->remedy[0] != '\0') {
      fprintf(file, "        %-18s  -> %s\n", "", check->remedy);
    }
  }
}

void checks_print_json(const struct checks* checks, FILE* file) {
  static const char* const names[] = {"ok", "note", "warning", "failure"};
  fputs("[", file);
  for (int i = 0; i < checks->count; ++i) {
    const struct check* check = &checks->list[i];
    fprintf(file, "%s\n    {\"section\": ", i > 0 ? "," : "");
    json_write_string(file, check->section);
    fputs(", \"name\": ", file);
    json_write_string(file, check->name);
    fprintf(file, ", \"status\": \"%s\", \"detail\": ", names[check->status]);
    json_write_string(file, check->detail);
    fputs(", \"remedy\": ", file);
    json_write_string(file, check->remedy[0] != '\0' ? check->remedy : NULL);
    fputc('}', file);
  }
  fputs("\n  ]", file);
}

int line_of_file(const char* path, char* line, int size) {
  FILE* file = fopen(path, "r");
  int found = 0;
  line[0] = '\0';
  if (file != NULL) {
    found = fgets(line, size, file) != NULL;
    line[strcspn(line, "\n")] = '\0';
    fclose(file);
  }
  return found;
}

unsigned long long number_in_file(const char* path, unsigned long long otherwise) {
  char line[64];
  unsigned long long value;
  return line_of_file(path, line, sizeof line) && sscanf(line, "%llu", &value) == 1 ? value
                                                                                    : otherwise;
}
