// What of symm-perf needs no machine: its arguments, statistics, rows and reports.

#include <getopt.h>
#include <gtest/gtest.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "examples/json.h"
#include "examples/perf/options.h"
#include "examples/perf/report.h"
#include "examples/perf/samples.h"
}

namespace {

perf_options parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "symm-perf");
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  perf_options options;
  optind = 0;  // getopt starts anew
  options_parse(static_cast<int>(argv.size()) - 1, argv.data(), 0, &options);
  return options;
}

TEST(PerfOptions, GpuDefaults) {
  const perf_options options = parse({"--device", "gpu"});
  EXPECT_EQ(options.gpu, 1);
  EXPECT_EQ(options.modes, static_cast<unsigned>(PERF_GRAPH));
  EXPECT_EQ(options.forms, static_cast<unsigned>(PERF_ALL_REDUCE));
  EXPECT_EQ(options.against_mpi, 0);
  EXPECT_EQ(options.against_nccl, 1);
  EXPECT_EQ(options.against_torch, 0);
  EXPECT_EQ(options.not_sole, 0);
  EXPECT_GE(options.batches, 10);
}

TEST(PerfOptions, CpuRanksHaveNoGpuEngines) {
  const perf_options options = parse({"--against", "mpi,nccl,torch"});
  EXPECT_EQ(options.gpu, 0);
  EXPECT_EQ(options.against_mpi, 2);
  EXPECT_EQ(options.against_nccl, 0);
  EXPECT_EQ(options.against_torch, 0);
}

TEST(PerfOptions, GpuArguments) {
  const perf_options options =
      parse({"--device=gpu", "--mode=eager,graph", "--form=window,all_reduce", "--behind-producer",
             "--not-sole", "--against=torch", "--min=1K", "--max=64M", "--dtype=bfloat16"});
  EXPECT_EQ(options.modes, static_cast<unsigned>(PERF_GRAPH | PERF_EAGER));
  EXPECT_EQ(options.forms, static_cast<unsigned>(PERF_ALL_REDUCE | PERF_WINDOW));
  EXPECT_EQ(options.behind_producer, 1);
  EXPECT_EQ(options.not_sole, 1);
  EXPECT_EQ(options.against_nccl, 0);
  EXPECT_EQ(options.against_torch, 2);
  EXPECT_EQ(options_cell_count(&options), 17);
  EXPECT_GE(options_row_limit(&options), 17 * 7 * 3);
}

struct WrongArguments {
  std::vector<std::string> arguments;
  const char* message;
};

TEST(PerfOptionsDeathTest, WrongArgumentsSayWhatToDo) {
  const WrongArguments cases[] = {
      {{"--device", "tpu"}, "cpu and gpu are known"},
      {{"--device", "gpu", "--dirty"}, "--behind-producer is its like"},
      {{"--behind-producer"}, "need --device gpu"},
      {{"--form", "none"}, "need --device gpu"},
      {{"--device", "gpu", "--mode", "eager", "--behind-producer"}, "needs graph"},
      {{"--device", "gpu", "--form", "none", "--against", "none"}, "nothing is left to time"},
      {{"--device", "gpu", "--form", "none,window"}, "no other form"},
      {{"--device", "gpu", "--mode", "fast"}, "graph and eager are known"},
      {{"--max", "4", "--dtype", "float64"}, "leave no size for float64"},
      {{"--ranks", "0"}, "a number from 1"},
      {{"--min", "1025G"}, "a size from 1 to 1024G"},
  };
  for (const WrongArguments& wrong : cases) {
    EXPECT_EXIT(parse(wrong.arguments), testing::ExitedWithCode(2), wrong.message);
  }
}

TEST(PerfSamples, Statistics) {
  std::vector<double> odd = {5, 1, 3};
  EXPECT_EQ(samples_median(odd.data(), odd.size()), 3);
  EXPECT_EQ(samples_min(odd.data(), odd.size()), 1);
  EXPECT_EQ(samples_p99(odd.data(), odd.size()), 5);
  std::vector<double> even = {4, 1, 3, 2};
  EXPECT_EQ(samples_median(even.data(), even.size()), 2.5);
  std::vector<double> many;
  for (int i = 200; i > 0; --i) {
    many.push_back(i);
  }
  EXPECT_EQ(samples_p99(many.data(), many.size()), 198);
  std::vector<double> one = {7};
  EXPECT_EQ(samples_median(one.data(), 1), 7);
  EXPECT_EQ(samples_p99(one.data(), 1), 7);
}

// ---- Rows and reports ----

row make_row(int cell, const char* engine, const char* mode, size_t bytes, double us) {
  row made;
  memset(&made, 0, sizeof made);
  made.cell = cell;
  snprintf(made.engine, sizeof made.engine, "%s", engine);
  snprintf(made.form, sizeof made.form, "all_reduce");
  snprintf(made.mode, sizeof made.mode, "%s", mode);
  snprintf(made.dtype, sizeof made.dtype, "bfloat16");
  snprintf(made.op, sizeof made.op, "sum");
  snprintf(made.algorithm, sizeof made.algorithm, strcmp(engine, "symm") == 0 ? "push" : "-");
  made.ranks = 2;
  made.bytes = bytes;
  made.median_us = us;
  made.min_us = us * 0.5;
  made.p99_us = us * 2;
  made.calls = 100;
  made.batches = 15;
  return made;
}

// What `write` puts into a file.
template <typename Write>
std::string written(Write write) {
  char* text = nullptr;
  size_t size = 0;
  FILE* file = open_memstream(&text, &size);
  write(file);
  fclose(file);
  const std::string result(text, size);
  free(text);
  return result;
}

TEST(PerfRow, TravelsAsText) {
  row sent = make_row(3, "nccl_symmetric", "graph", 268435456, 892.9375);
  sent.in_place = 1;
  sent.behind_producer = 1;
  sent.rewrite_us = 3.25;
  sent.wrong = 18446744073709551615ull;
  const std::string line = written([&](FILE* file) { row_write(file, &sent); });
  row got;
  memset(&got, 0, sizeof got);
  ASSERT_EQ(row_parse(line.c_str(), &got), 1);
  EXPECT_STREQ(got.engine, "nccl_symmetric");
  EXPECT_EQ(got.bytes, sent.bytes);
  EXPECT_EQ(got.in_place, 1);
  EXPECT_EQ(got.dirty, 0);
  EXPECT_EQ(got.behind_producer, 1);
  EXPECT_EQ(got.median_us, sent.median_us);
  EXPECT_EQ(got.rewrite_us, sent.rewrite_us);
  EXPECT_EQ(got.wrong, sent.wrong);
  EXPECT_EQ(row_parse(line.substr(0, line.size() / 2).c_str(), &got), 0);
  EXPECT_EQ(row_parse("Open MPI says something", &got), 0);
}

TEST(PerfRow, TorchRanksWriteTheSameLine) {
  // As torch_ranks.py formats it; a field more or less in row.c must be one there.
  const char* const line =
      "@row 7 torch_two_shot all_reduce graph float32 sum - 2 8388608 1 0 0 37.35 37.1 38.5 0 0 20 "
      "15 0 0 4";
  row got;
  memset(&got, 0, sizeof got);
  ASSERT_EQ(row_parse(line, &got), 1);
  EXPECT_STREQ(got.engine, "torch_two_shot");
  EXPECT_EQ(got.in_place, 1);
  EXPECT_EQ(got.median_us, 37.35);
  EXPECT_EQ(got.calls, 20);
  EXPECT_EQ(got.batches, 15);
  EXPECT_EQ(got.wrong, 4u);
}

class PerfReport : public testing::Test {
 protected:
  PerfReport() : options_(parse({"--device", "gpu", "--mode", "graph,eager"})) {
    snprintf(machine_->cpu, sizeof machine_->cpu, "a \"CPU\"");
    gpus_.count = 2;
    snprintf(gpus_.names[0], sizeof gpus_.names[0], "NVIDIA H200");
    snprintf(gpus_.names[1], sizeof gpus_.names[1], "NVIDIA H200");
    snprintf(gpus_.driver, sizeof gpus_.driver, "580.159.04");
    snprintf(gpus_.nccl, sizeof gpus_.nccl, "2.28.9");
    gpu_machine_add_floor(&gpus_, "graph_node_us 0.54");
    gpu_machine_add_floor(&gpus_, "flag_us 0");
    gpu_machine_add_floor(&gpus_, "nonsense");
    rows_ = {
        make_row(0, "symm", "graph", 8, 1.5),         make_row(0, "nccl", "graph", 8, 6),
        make_row(0, "nccl_symmetric", "graph", 8, 3), make_row(0, "symm", "host", 8, 3),
        make_row(0, "nccl", "host", 8, 12),           make_row(0, "torch_one_shot", "host", 8, 10),
        make_row(1, "symm", "graph", 16, 2),          make_row(1, "nccl", "graph", 16, 1)};
    rows_[3].rewrite_us = 2.5;
    rows_[6].behind_producer = 1;
    rows_[6].rewrite_us = 3.125;
    memset(&report_, 0, sizeof report_);
    report_.options = &options_;
    report_.machine = machine_.get();
    report_.gpus = &gpus_;
    report_.rows = rows_.data();
    report_.row_count = static_cast<int>(rows_.size());
  }

  perf_options options_;
  std::unique_ptr<machine> machine_ = std::make_unique<machine>();
  gpu_machine gpus_{};
  std::vector<row> rows_;
  report report_;
};

TEST_F(PerfReport, ComparesWithinOneModeOfOneCell) {
  ASSERT_NE(report_best_other(&report_, &rows_[0]), nullptr);
  EXPECT_STREQ(report_best_other(&report_, &rows_[0])->engine, "nccl_symmetric");
  EXPECT_STREQ(report_best_other(&report_, &rows_[3])->engine, "torch_one_shot");
  EXPECT_EQ(report_best_other(&report_, &rows_[1]), nullptr);
  // One of the two is behind a producer.
  EXPECT_EQ(report_best_other(&report_, &rows_[6]), nullptr);
}

TEST_F(PerfReport, Json) {
  const std::string json = written([&](FILE* file) { json_report(&report_, file); });
  const char* const end = json_skip(json.c_str());
  ASSERT_NE(end, nullptr);
  EXPECT_STREQ(end, "\n");
  const auto value = [&](const char* path) {
    char text[128];
    return json_text(json.c_str(), path, text, sizeof text) ? std::string(text) : "(none)";
  };
  EXPECT_EQ(value("machine.cpu"), "a \"CPU\"");
  EXPECT_EQ(value("machine.gpus.1"), "NVIDIA H200");
  EXPECT_EQ(value("machine.gpus.2"), "(none)");
  EXPECT_EQ(value("machine.driver"), "580.159.04");
  EXPECT_EQ(value("machine.nccl"), "2.28.9");
  EXPECT_EQ(value("machine.torch"), "null");
  EXPECT_EQ(value("machine.floors.graph_node_us"), "0.54");
  EXPECT_EQ(value("machine.floors.flag_us"), "null");
  EXPECT_EQ(value("machine.floors.nonsense"), "(none)");
  EXPECT_EQ(value("run.sole"), "true");
  EXPECT_EQ(value("results.0.ratio_to_best"), "0.5");
  EXPECT_EQ(value("results.0.best"), "nccl_symmetric");
  EXPECT_EQ(value("results.0.mode"), "graph");
  EXPECT_EQ(value("results.1.ratio_to_best"), "(none)");
  EXPECT_EQ(value("results.3.ratio_to_best"), "0.3");
  EXPECT_EQ(value("results.3.launch_us"), "2.5");
  EXPECT_EQ(value("results.0.launch_us"), "(none)");
  EXPECT_EQ(value("results.6.behind_producer"), "true");
  EXPECT_EQ(value("results.6.producer_us"), "3.125");
  EXPECT_EQ(value("results.0.behind_producer"), "(none)");
}

TEST_F(PerfReport, TableTellsRatiosAndWrongResults) {
  const std::string good = written([&](FILE* file) {
    gpu_table_header(&report_, file);
    gpu_table_cell(&report_, 0, file);
    gpu_table_footer(&report_, file);
  });
  EXPECT_NE(good.find("NCCL 2.28.9 on 2 x NVIDIA H200"), std::string::npos) << good;
  EXPECT_NE(good.find("SYMM_COMM_SOLE set"), std::string::npos) << good;
  EXPECT_NE(good.find("all_reduce graph bfloat16 sum: 0.50 of the fastest other's time"),
            std::string::npos)
      << good;
  EXPECT_NE(good.find("Every result was right."), std::string::npos) << good;
  rows_[1].wrong = 3;
  const std::string bad = written([&](FILE* file) { gpu_table_footer(&report_, file); });
  EXPECT_NE(bad.find("WRONG: 3 elements"), std::string::npos) << bad;
}

}  // namespace
