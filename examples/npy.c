#define _POSIX_C_SOURCE 200809L /* fseeko */

#include "npy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct element_type {
  const char* descr; /* NULL: NumPy has no such type */
  const char* name;
  symm_dtype dtype;
  size_t size;
};

static const struct element_type element_types[] = {
    {"|i1", "int8", SYMM_INT8, 1},
    {"|u1", "uint8", SYMM_UINT8, 1},
    {"<i4", "int32", SYMM_INT32, 4},
    {"<u4", "uint32", SYMM_UINT32, 4},
    {"<i8", "int64", SYMM_INT64, 8},
    {"<u8", "uint64", SYMM_UINT64, 8},
    {"<f2", "float16", SYMM_FLOAT16, 2},
    {"<f4", "float32", SYMM_FLOAT32, 4},
    {"<f8", "float64", SYMM_FLOAT64, 8},
    {NULL, "bfloat16", SYMM_BFLOAT16, 2},
    {NULL, "float8_e4m3", SYMM_FLOAT8_E4M3, 1},
    {NULL, "float8_e5m2", SYMM_FLOAT8_E5M2, 1},
    /* Carriers of the types that NumPy lacks; npy_view says which. ml_dtypes writes the V ones. */
    {"<u2", NULL, SYMM_DTYPE_NONE, 2},
    {"<V2", NULL, SYMM_DTYPE_NONE, 2},
    {"|V2", NULL, SYMM_DTYPE_NONE, 2},
    {"<V1", NULL, SYMM_DTYPE_NONE, 1},
    {"|V1", NULL, SYMM_DTYPE_NONE, 1},
};

enum { element_type_count = sizeof element_types / sizeof element_types[0] };

static const char magic[] = "\x93NUMPY";
enum { magic_size = 6, max_header = 1 << 16, alignment = 64 };

static int fail(char* error, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error, NPY_ERROR_SIZE, format, arguments);
  va_end(arguments);
  /* A message quotes the file, which may hold anything; a terminal should not get it. */
  for (char* at = error; *at != '\0'; ++at) {
    *at = *at < ' ' || *at > '~' ? '?' : *at;
  }
  return -1;
}

static const struct element_type* find_descr(const char* descr) {
  for (int i = 0; i < element_type_count; ++i) {
    if (element_types[i].descr != NULL && strcmp(element_types[i].descr, descr) == 0) {
      return &element_types[i];
    }
  }
  return NULL;
}

symm_dtype npy_dtype_by_name(const char* name) {
  for (int i = 0; i < element_type_count; ++i) {
    if (element_types[i].name != NULL && strcmp(element_types[i].name, name) == 0) {
      return element_types[i].dtype;
    }
  }
  return SYMM_DTYPE_NONE;
}

int npy_view(npy_array* array, symm_dtype dtype, char* error) {
  for (int i = 0; i < element_type_count; ++i) {
    if (element_types[i].name != NULL && element_types[i].dtype == dtype) {
      if (element_types[i].size != array->item_size) {
        return fail(error, "elements '%s' have %zu bytes, %s has %zu", array->descr,
                    array->item_size, element_types[i].name, element_types[i].size);
      }
      array->dtype = dtype;
      return 0;
    }
  }
  return fail(error, "'%s' must be taken as an element type of symm, by name", array->descr);
}

/* ---- The header: a Python dictionary, {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * ---- */

struct parser {
  const char* at; /* NUL-terminated; a NUL inside the header ends it early and is refused as such */
  char* error;
};

static void skip_spaces(struct parser* parser) {
  while (*parser->at == ' ') {
    ++parser->at;
  }
}

static int take(struct parser* parser, char wanted) {
  skip_spaces(parser);
  if (*parser->at != wanted) {
    return 0;
  }
  ++parser->at;
  skip_spaces(parser);
  return 1;
}

static int expect(struct parser* parser, char wanted) {
  if (!take(parser, wanted)) {
    return fail(parser->error, "malformed header: '%c' expected before \"%.20s\"", wanted,
                parser->at);
  }
  return 0;
}

/* A quoted string with no escapes. */
static int parse_string(struct parser* parser, char* buffer, size_t size) {
  const char quote = *parser->at;
  if (quote != '\'' && quote != '"') {
    return fail(parser->error, "malformed header: a string expected before \"%.20s\"", parser->at);
  }
  const char* start = parser->at + 1;
  const char* end = strchr(start, quote);
  if (end == NULL || memchr(start, '\\', (size_t)(end - start)) != NULL) {
    return fail(parser->error, "malformed header: string not ended: \"%.20s\"", parser->at);
  }
  if ((size_t)(end - start) >= size) {
    return fail(parser->error, "header has an unknown word: \"%.20s\"", start);
  }
  memcpy(buffer, start, (size_t)(end - start));
  buffer[end - start] = '\0';
  parser->at = end + 1;
  return 0;
}

static int parse_descr(struct parser* parser, npy_array* array) {
  if (*parser->at == '[') {
    return fail(parser->error, "structured arrays cannot be reduced");
  }
  if (parse_string(parser, array->descr, sizeof array->descr) != 0) {
    return -1;
  }
  const struct element_type* type = find_descr(array->descr);
  if (type == NULL) {
    const char* remedy = array->descr[0] == '>' ? "; save it with .astype('<...')" : "";
    return fail(parser->error, "symm has no element type '%s'%s", array->descr, remedy);
  }
  array->dtype = type->dtype;
  array->item_size = type->size;
  return 0;
}

static int parse_order(struct parser* parser) {
  if (strncmp(parser->at, "False", 5) == 0) {
    parser->at += 5;
    return 0;
  }
  if (strncmp(parser->at, "True", 4) == 0) {
    return fail(parser->error, "Fortran order; save it with numpy.ascontiguousarray");
  }
  return fail(parser->error, "malformed header: 'fortran_order' is \"%.20s\"", parser->at);
}

static int parse_size(struct parser* parser, size_t* size) {
  if (*parser->at < '0' || *parser->at > '9') {
    return fail(parser->error, "malformed header: a dimension expected before \"%.20s\"",
                parser->at);
  }
  *size = 0;
  for (; *parser->at >= '0' && *parser->at <= '9'; ++parser->at) {
    const size_t digit = (size_t)(*parser->at - '0');
    if (*size > (SIZE_MAX - digit) / 10) {
      return fail(parser->error, "a dimension does not fit 64 bits");
    }
    *size = *size * 10 + digit;
  }
  return 0;
}

static int parse_shape(struct parser* parser, npy_array* array) {
  if (expect(parser, '(') != 0) {
    return -1;
  }
  array->dims = 0;
  while (!take(parser, ')')) {
    if (array->dims == NPY_MAX_DIMS) {
      return fail(parser->error, "more than %d dimensions", NPY_MAX_DIMS);
    }
    if (parse_size(parser, &array->shape[array->dims++]) != 0) {
      return -1;
    }
    const int comma = take(parser, ',');
    /* "(3)" is a number in Python, "(3,)" a tuple. */
    if (!comma && (array->dims == 1 || *parser->at != ')')) {
      return fail(parser->error, "malformed header: ',' expected before \"%.20s\"", parser->at);
    }
  }
  return 0;
}

static int parse_header(const char* header, npy_array* array, char* error) {
  struct parser parser = {header, error};
  int has_descr = 0, has_order = 0, has_shape = 0;
  if (expect(&parser, '{') != 0) {
    return -1;
  }
  while (!take(&parser, '}')) {
    char key[16];
    if (parse_string(&parser, key, sizeof key) != 0 || expect(&parser, ':') != 0) {
      return -1;
    }
    int result;
    if (strcmp(key, "descr") == 0 && !has_descr++) {
      result = parse_descr(&parser, array);
    } else if (strcmp(key, "fortran_order") == 0 && !has_order++) {
      result = parse_order(&parser);
    } else if (strcmp(key, "shape") == 0 && !has_shape++) {
      result = parse_shape(&parser, array);
    } else {
      result = fail(error, "header has the key '%s' twice, or it is unknown", key);
    }
    if (result != 0) {
      return -1;
    }
    if (!take(&parser, ',') && *parser.at != '}') {
      return fail(error, "malformed header: ',' expected before \"%.20s\"", parser.at);
    }
  }
  if (!has_descr || !has_order || !has_shape) {
    return fail(error, "header lacks 'descr', 'fortran_order' or 'shape'");
  }
  if (strcmp(parser.at, "\n") != 0) {
    return fail(error, "malformed header: junk after the dictionary");
  }
  return 0;
}

/* count = product of the shape; the bytes must be countable too. */
static int count_elements(npy_array* array, char* error) {
  size_t bytes = array->item_size;
  int empty = 0;
  array->count = 1;
  for (int i = 0; i < array->dims; ++i) {
    if (array->shape[i] == 0) {
      empty = 1;
    } else if (bytes > PTRDIFF_MAX / array->shape[i]) {
      return fail(error, "the shape has more bytes than an address space");
    } else {
      bytes *= array->shape[i];
      array->count *= array->shape[i];
    }
  }
  if (empty) {
    array->count = 0;
  }
  return 0;
}

static int read_exactly(FILE* file, void* buffer, size_t size, char* error) {
  if (fread(buffer, 1, size, file) == size) {
    return 0;
  }
  return ferror(file) ? fail(error, "cannot be read: %s", strerror(errno))
                      : fail(error, "file ends early");
}

static int read_header(FILE* file, npy_array* array, char* error) {
  unsigned char start[12]; /* magic, major, minor, then a length of 2 or 4 bytes */
  if (read_exactly(file, start, 8, error) != 0) {
    return -1;
  }
  if (memcmp(start, magic, magic_size) != 0) {
    return fail(error, "not a .npy file");
  }
  if ((start[6] != 1 && start[6] != 2) || start[7] != 0) {
    return fail(error, "format %d.%d is unknown (1.0 and 2.0 are)", start[6], start[7]);
  }
  const size_t length_size = start[6] == 1 ? 2 : 4;
  if (read_exactly(file, start + 8, length_size, error) != 0) {
    return -1;
  }
  size_t length = 0;
  for (size_t i = 0; i < length_size; ++i) {
    length |= (size_t)start[8 + i] << (8 * i);
  }
  if (length >= max_header) {
    return fail(error, "header of %zu bytes is too long", length);
  }
  char* header = malloc(length + 1);
  if (header == NULL) {
    return fail(error, "out of memory");
  }
  header[length] = '\0';
  int result = read_exactly(file, header, length, error);
  if (result == 0 && memchr(header, '\0', length) != NULL) {
    result = fail(error, "malformed header: it contains a NUL");
  }
  if (result == 0) {
    result = parse_header(header, array, error);
  }
  free(header);
  return result;
}

/* Bytes from here to the end, so that a header can make nobody allocate more than the file has. */
static int bytes_left(FILE* file, uintmax_t* left, char* error) {
  const off_t here = ftello(file);
  if (here < 0 || fseeko(file, 0, SEEK_END) != 0) {
    return fail(error, "not a regular file: %s", strerror(errno));
  }
  const off_t end = ftello(file);
  if (end < here || fseeko(file, here, SEEK_SET) != 0) {
    return fail(error, "cannot be read: %s", strerror(errno));
  }
  *left = (uintmax_t)(end - here);
  return 0;
}

int npy_read(FILE* file, npy_array* array, char* error) {
  npy_array result;
  memset(&result, 0, sizeof result);
  uintmax_t left = 0;
  if (read_header(file, &result, error) != 0 || count_elements(&result, error) != 0 ||
      bytes_left(file, &left, error) != 0) {
    return -1;
  }
  const size_t bytes = result.count * result.item_size;
  if (left != bytes) {
    return fail(error, "the shape needs %zu bytes of data, the file has %ju", bytes, left);
  }
  result.data = malloc(bytes > 0 ? bytes : 1);
  if (result.data == NULL) {
    return fail(error, "out of memory: %zu bytes", bytes);
  }
  if (read_exactly(file, result.data, bytes, error) != 0) {
    free(result.data);
    return -1;
  }
  *array = result;
  return 0;
}

int npy_write(FILE* file, const npy_array* array, char* error) {
  char header[1024]; /* NPY_MAX_DIMS numbers of at most 20 digits, and 64 bytes around them */
  int length = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                        array->descr);
  for (int i = 0; i < array->dims; ++i) {
    length += snprintf(header + length, sizeof header - (size_t)length, "%zu%s", array->shape[i],
                       i + 1 < array->dims ? ", "
                       : array->dims == 1  ? ","
                                           : "");
  }
  length += snprintf(header + length, sizeof header - (size_t)length, "), }");
  /* Spaces and a newline, so that the data starts at a multiple of 64. */
  const size_t prefix = magic_size + 4;
  const size_t total = (prefix + (size_t)length + alignment) / alignment * alignment;
  const size_t padded = total - prefix;
  memset(header + length, ' ', padded - (size_t)length);
  header[padded - 1] = '\n';

  const unsigned char start[4] = {1, 0, (unsigned char)(padded & 0xff),
                                  (unsigned char)(padded >> 8)};
  const size_t bytes = array->count * array->item_size;
  if (fwrite(magic, 1, magic_size, file) != magic_size || fwrite(start, 1, 4, file) != 4 ||
      fwrite(header, 1, padded, file) != padded || fwrite(array->data, 1, bytes, file) != bytes ||
      fflush(file) != 0) {
    return fail(error, "cannot be written: %s", strerror(errno));
  }
  return 0;
}

int npy_load(const char* path, npy_array* array, char* error) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) {
    return fail(error, "cannot be opened: %s", strerror(errno));
  }
  const int result = npy_read(file, array, error);
  fclose(file);
  return result;
}

int npy_save(const char* path, const npy_array* array, char* error) {
  FILE* file = fopen(path, "wb");
  if (file == NULL) {
    return fail(error, "cannot be created: %s", strerror(errno));
  }
  int result = npy_write(file, array, error);
  if (fclose(file) != 0 && result == 0) {
    result = fail(error, "cannot be written: %s", strerror(errno));
  }
  return result;
}

void npy_free(npy_array* array) {
  free(array->data);
  array->data = NULL;
}
