#include "row.h"

void row_write(FILE* file, const struct row* row) {
  fprintf(file,
          "@row %d %s %s %s %s %s %s %d %zu %d %d %d %.9g %.9g %.9g %.9g %.9g %d %d %d %d %llu\n",
          row->cell, row->engine, row->form, row->mode, row->dtype, row->op, row->algorithm,
          row->ranks, row->bytes, row->in_place, row->dirty, row->behind_producer, row->median_us,
          row->min_us, row->p99_us, row->rewrite_us, row->ping_pong_ns, row->calls, row->batches,
          row->redone, row->disturbed, row->wrong);
  fflush(file);
}

int row_parse(const char* line, struct row* row) {
  return sscanf(
             line,
             "@row %d %31s %31s %31s %31s %31s %31s %d %zu %d %d %d %lf %lf %lf %lf %lf %d %d %d "
             "%d %llu",
             &row->cell, row->engine, row->form, row->mode, row->dtype, row->op, row->algorithm,
             &row->ranks, &row->bytes, &row->in_place, &row->dirty, &row->behind_producer,
             &row->median_us, &row->min_us, &row->p99_us, &row->rewrite_us, &row->ping_pong_ns,
             &row->calls, &row->batches, &row->redone, &row->disturbed, &row->wrong) == 22;
}
