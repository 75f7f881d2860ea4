#include "json.h"

#include <string.h>

enum { most_depth = 64 };

/* Length of the UTF-8 sequence at `text`; 0 if it is none. Overlong forms and surrogates are not
 * told apart. */
static int utf8_length(const unsigned char* text) {
  int length;
  if (text[0] < 0x80) {
    return 1;
  } else if (text[0] >= 0xc2 && text[0] < 0xe0) {
    length = 2;
  } else if (text[0] >= 0xe0 && text[0] < 0xf0) {
    length = 3;
  } else if (text[0] >= 0xf0 && text[0] < 0xf5) {
    length = 4;
  } else {
    return 0;
  }
  for (int i = 1; i < length; ++i) {
    if ((text[i] & 0xc0) != 0x80) {
      return 0; /* a NUL ends here too */
    }
  }
  return length;
}

void json_write_string(FILE* file, const char* text) {
  if (text == NULL) {
    fputs("null", file);
    return;
  }
  fputc('"', file);
  const unsigned char* at = (const unsigned char*)text;
  while (*at != '\0') {
    const int length = utf8_length(at);
    if (length == 0) {
      fputc('?', file);
      ++at;
    } else if (*at == '"' || *at == '\\') {
      fprintf(file, "\\%c", *at++);
    } else if (*at == '\n') {
      fputs("\\n", file);
      ++at;
    } else if (*at < 0x20) {
      fprintf(file, "\\u%04x", *at++);
    } else {
      fwrite(at, 1, (size_t)length, file);
      at += length;
    }
  }
  fputc('"', file);
}

static const char* skip_spaces(const char* at) { return at + strspn(at, " \t\r\n"); }

/* Past the closing quote. */
static const char* skip_string(const char* at) {
  for (++at; *at != '"'; ++at) {
    if (*at == '\\') {
      ++at;
    }
    if (*at == '\0') {
      return NULL;
    }
  }
  return at + 1;
}

const char* json_skip(const char* value) {
  char closing[most_depth];
  int depth = 0;
  const char* at = skip_spaces(value);
  do {
    if (*at == '"') {
      at = skip_string(at);
      if (at == NULL) {
        return NULL;
      }
    } else if (*at == '{' || *at == '[') {
      if (depth == most_depth) {
        return NULL;
      }
      closing[depth++] = *at++ == '{' ? '}' : ']';
    } else if (*at == '}' || *at == ']') {
      if (depth == 0 || closing[--depth] != *at++) {
        return NULL;
      }
    } else if (depth > 0 && (*at == ',' || *at == ':')) {
      ++at;
    } else {
      const size_t length = strcspn(at, ",:{}[]\" \t\r\n");
      if (length == 0) {
        return NULL;
      }
      at += length;
    }
    if (depth > 0) {
      at = skip_spaces(at);
    }
  } while (depth > 0);
  return at;
}

/* The value of the member or item named by `name` inside the container at `at`. */
static const char* find_child(const char* at, const char* name, size_t length) {
  const char opening = *at;
  size_t index = 0;
  if (opening != '{' && opening != '[') {
    return NULL;
  }
  if (opening == '[') {
    for (size_t i = 0; i < length; ++i) {
      if (name[i] < '0' || name[i] > '9' || index > 1000000) {
        return NULL;
      }
      index = index * 10 + (size_t)(name[i] - '0');
    }
  }
  at = skip_spaces(at + 1);
  while (*at != '\0' && *at != '}' && *at != ']') {
    int found;
    if (opening == '[') {
      found = index-- == 0;
    } else {
      const char* end = *at == '"' ? skip_string(at) : NULL;
      if (end == NULL) {
        return NULL;
      }
      found = (size_t)(end - at) == length + 2 && memcmp(at + 1, name, length) == 0;
      at = skip_spaces(end);
      if (*at != ':') {
        return NULL;
      }
      at = skip_spaces(at + 1);
    }
    if (found) {
      return at;
    }
    at = json_skip(at);
    if (at == NULL) {
      return NULL;
    }
    at = skip_spaces(at);
    if (*at == ',') {
      at = skip_spaces(at + 1);
    }
  }
  return NULL;
}

const char* json_find(const char* document, const char* path) {
  const char* at = skip_spaces(document);
  while (at != NULL && *path != '\0') {
    const size_t length = strcspn(path, ".");
    at = find_child(at, path, length);
    path += length;
    if (*path == '.') {
      ++path;
    }
  }
  return at;
}

/* Four hexadecimal digits; -1 if they are not there. */
static long hex4(const char* at) {
  long value = 0;
  for (int i = 0; i < 4; ++i) {
    const char* digits = "0123456789abcdef";
    const char lower = at[i] >= 'A' && at[i] <= 'F' ? (char)(at[i] - 'A' + 'a') : at[i];
    const char* digit = lower == '\0' ? NULL : strchr(digits, lower);
    if (digit == NULL) {
      return -1;
    }
    value = value * 16 + (digit - digits);
  }
  return value;
}

/* The character of the escape after the backslash at *at, which moves to its last byte; '?' for
 * what is not ASCII. */
static char unescape(const char** at) {
  const char letter = *++*at;
  const char* const from = "nrtbf";
  const char* const known = strchr(from, letter);
  if (known != NULL && letter != '\0') {
    return "\n\r\t\b\f"[known - from];
  }
  if (letter != 'u') {
    return letter;
  }
  const long code = hex4(*at + 1);
  if (code < 0) {
    return '?';
  }
  *at += 4;
  return code < 0x80 ? (char)code : '?';
}

int json_text(const char* document, const char* path, char* buffer, size_t size) {
  const char* value = json_find(document, path);
  const char* end = value == NULL ? NULL : json_skip(value);
  buffer[0] = '\0';
  if (end == NULL) {
    return 0;
  }
  size_t length = 0;
  if (*value == '"') {
    for (const char* at = value + 1; at < end - 1 && length + 1 < size; ++at) {
      buffer[length++] = *at == '\\' ? unescape(&at) : *at;
    }
  } else {
    length = (size_t)(end - value) < size ? (size_t)(end - value) : size - 1;
    memcpy(buffer, value, length);
  }
  buffer[length] = '\0';
  return 1;
}
