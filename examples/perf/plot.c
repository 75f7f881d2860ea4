/* A line chart as one SVG file: time against bytes, both logarithmic. */
#include <math.h>
#include <string.h>

#include "report.h"

enum { width = 820, height = 520, left = 80, right = 230, top = 40, bottom = 60, most_series = 64 };

/* Told apart by people who do not see red and green too (Okabe and Ito); then dashed. */
static const char* const colors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                     "#e69f00", "#56b4e9", "#000000"};
enum { color_count = sizeof colors / sizeof colors[0] };

struct axis {
  double low; /* logarithms */
  double high;
  double from; /* pixels */
  double to;
};

static double place(const struct axis* axis, double value) {
  return axis->from + (log(value) - axis->low) / (axis->high - axis->low) * (axis->to - axis->from);
}

static void make_axes(const struct report* report, struct axis* x, struct axis* y) {
  double bytes_low = HUGE_VAL, bytes_high = 0, us_low = HUGE_VAL, us_high = 0;
  for (int i = 0; i < report->row_count; ++i) {
    const struct row* row = &report->rows[i];
    bytes_low = fmin(bytes_low, (double)row->bytes);
    bytes_high = fmax(bytes_high, (double)row->bytes);
    us_low = fmin(us_low, row->median_us);
    us_high = fmax(us_high, row->median_us);
  }
  x->low = log(bytes_low);
  x->high = log(fmax(bytes_high, bytes_low * 2));
  x->from = left;
  x->to = width - right;
  y->low = log(10) * floor(log10(us_low));
  y->high = log(10) * ceil(log10(us_high * 1.0001));
  y->from = height - bottom;
  y->to = top;
}

static void bytes_label(double bytes, char* label, size_t size) {
  static const char units[] = " KMGT";
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  snprintf(label, size, "%.4g%.*s", bytes, unit > 0, &units[unit]);
}

static void draw_grid(const struct axis* x, const struct axis* y, FILE* file) {
  const double octaves = (x->high - x->low) / log(2);
  const double step = octaves > 12 ? 4 : 2;
  for (double bytes = exp(x->low); log(bytes) <= x->high + 1e-9; bytes *= step) {
    char label[32];
    bytes_label(bytes, label, sizeof label);
    fprintf(file,
            "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#e4e4e4'/>"
            "<text x='%.1f' y='%d' text-anchor='middle'>%s</text>\n",
            place(x, bytes), top, place(x, bytes), height - bottom, place(x, bytes),
            height - bottom + 18, label);
  }
  for (double us = exp(y->low); log(us) <= y->high + 1e-9; us *= 10) {
    fprintf(file,
            "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#cccccc'/>"
            "<text x='%d' y='%.1f' text-anchor='end'>%.7g</text>\n",
            left, place(y, us), width - right, place(y, us), left - 8, place(y, us) + 4, us);
    for (int i = 2; i < 10 && log(us * i) < y->high; ++i) {
      fprintf(file, "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#f2f2f2'/>\n", left,
              place(y, us * i), width - right, place(y, us * i));
    }
  }
  fprintf(file,
          "<rect x='%d' y='%d' width='%d' height='%d' fill='none' stroke='#444444'/>\n"
          "<text x='%d' y='%d' text-anchor='middle'>bytes of one rank's input</text>\n"
          "<text transform='translate(22 %d) rotate(-90)' text-anchor='middle'>time of a call, "
          "us</text>\n",
          left, top, width - right - left, height - bottom - top, (left + width - right) / 2,
          height - 16, (top + height - bottom) / 2);
}

static int same_series(const struct row* a, const struct row* b) {
  return strcmp(a->engine, b->engine) == 0 && strcmp(a->form, b->form) == 0 &&
         strcmp(a->dtype, b->dtype) == 0 && strcmp(a->op, b->op) == 0 &&
         strcmp(a->mode, b->mode) == 0;
}

/* MPI is measured again beside each of symm's element types that it lacks: its first line stands
 * for all. */
static int new_point(const struct report* report, int index) {
  for (int i = 0; i < index; ++i) {
    if (same_series(&report->rows[i], &report->rows[index]) &&
        report->rows[i].bytes == report->rows[index].bytes) {
      return 0;
    }
  }
  return 1;
}

static void draw_series(const struct report* report, int first, int number, const struct axis* x,
                        const struct axis* y, FILE* file) {
  const struct row* like = &report->rows[first];
  const char* const color = colors[number % color_count];
  const char* const dash = number < color_count ? "none" : "6 4";
  fprintf(file, "<polyline fill='none' stroke='%s' stroke-width='2' stroke-dasharray='%s' points='",
          color, dash);
  for (int i = first; i < report->row_count; ++i) {
    const struct row* row = &report->rows[i];
    if (same_series(row, like) && new_point(report, i)) {
      fprintf(file, "%.1f,%.1f ", place(x, (double)row->bytes), place(y, row->median_us));
    }
  }
  fputs("'/>\n", file);
  for (int i = first; i < report->row_count; ++i) {
    const struct row* row = &report->rows[i];
    if (same_series(row, like) && new_point(report, i)) {
      fprintf(file,
              "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'><title>%zu bytes: %.4g us</title>"
              "</circle>\n",
              place(x, (double)row->bytes), place(y, row->median_us), color, row->bytes,
              row->median_us);
    }
  }
  const int at = top + 14 + 20 * number;
  fprintf(file,
          "<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='%s' stroke-width='2' "
          "stroke-dasharray='%s'/><text x='%d' y='%d'>%s %s %s %s %s</text>\n",
          width - right + 14, at, width - right + 40, at, color, dash, width - right + 46, at + 4,
          like->engine, strcmp(like->form, "window") == 0 ? "window" : "", like->dtype, like->op,
          report->options->gpu ? like->mode : "");
}

void plot_report(const struct report* report, FILE* file) {
  struct axis x, y;
  make_axes(report, &x, &y);
  fprintf(file,
          "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' "
          "font-family='sans-serif' font-size='12'>\n"
          "<rect width='100%%' height='100%%' fill='white'/>\n"
          "<text x='%d' y='24' font-size='15'>All-reduce of %d ranks (%s)%s%s</text>\n",
          width, height, width, height, left, report->options->ranks,
          report->options->threads ? "threads" : "processes",
          report->options->in_place ? ", in place" : "",
          report->options->dirty             ? ", inputs rewritten"
          : report->options->behind_producer ? ", behind a producer"
                                             : "");
  draw_grid(&x, &y, file);
  int number = 0;
  for (int i = 0; i < report->row_count && number < most_series; ++i) {
    int known = 0;
    for (int other = 0; other < i && !known; ++other) {
      known = same_series(&report->rows[other], &report->rows[i]);
    }
    if (!known) {
      draw_series(report, i, number++, &x, &y, file);
    }
  }
  fputs("</svg>\n", file);
}
