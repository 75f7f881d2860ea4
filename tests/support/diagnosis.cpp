#include "tests/support/diagnosis.h"

#include <cstdlib>

namespace symm_test {

std::string number(const std::string& name, long value) {
  return name + "=" + std::to_string(value);
}

Variables but(Variables variables, const std::string& change) {
  const std::string name = change.substr(0, change.find('='));
  std::erase_if(variables, [&](const std::string& one) { return one.rfind(name + "=", 0) == 0; });
  if (change != name) variables.push_back(change);
  return variables;
}

Variables job_of_two(int rank, int port) {
  return {number("RANK", rank), "WORLD_SIZE=2", number("LOCAL_RANK", rank), "MASTER_ADDR=127.0.0.1",
          number("MASTER_PORT", port)};
}

std::string with_double(const std::string& name) {
  const std::string folder = built("doubles/" + name);
  EXPECT_NE(folder, "") << name << " is not built";
  const char* path = getenv("LD_LIBRARY_PATH");
  return "LD_LIBRARY_PATH=" + folder + (path == nullptr ? "" : std::string(":") + path);
}

std::string preloaded(const std::string& name) {
  const std::string file = built("doubles/" + name + "/lib" + name + ".so");
  EXPECT_NE(file, "") << name << " is not built";
  return "LD_PRELOAD=" + file;
}

Finding Diagnosis::find(const std::string& name) const {
  for (const Finding& finding : findings) {
    if (finding.name == name) return finding;
  }
  return {};
}

std::string doctor() { return built("../examples/symm-doctor"); }

Diagnosis read_diagnosis(const Ended& ended) {
  Diagnosis result;
  result.status = ended.status;
  result.seconds = ended.seconds;
  try {
    result.json = parse_json(ended.output);
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what() << " in: " << ended.output;
    return result;
  }
  bool failed = false;
  for (const Json& check : result.json["checks"].items) {
    const Finding finding = {check["section"].string, check["name"].string, check["status"].string,
                             check["detail"].string, check["remedy"].string};
    EXPECT_FALSE(finding.section.empty() || finding.name.empty() || finding.detail.empty())
        << ended.output;
    if (finding.status == "warning" || finding.status == "failure") {
      EXPECT_NE(finding.remedy, "") << finding.name << ": " << finding.detail;
    } else {
      EXPECT_TRUE(finding.status == "ok" || finding.status == "note") << finding.status;
    }
    failed = failed || finding.status == "failure";
    result.findings.push_back(finding);
  }
  EXPECT_FALSE(result.findings.empty()) << ended.output;
  EXPECT_EQ(result.json["ok"].boolean, !failed) << ended.output;
  EXPECT_EQ(result.status, failed ? 1 : 0) << ended.output;
  return result;
}

Diagnosis diagnose(const Variables& variables, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {doctor(), "--json"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return read_diagnosis(Program(command, plain_environment(variables)).finish());
}

testing::AssertionResult says(const Diagnosis& diagnosis, const std::string& name,
                              const std::string& status, std::initializer_list<std::string> details,
                              std::initializer_list<std::string> remedies) {
  const Finding finding = diagnosis.find(name);
  std::string lacking;
  if (finding.name.empty()) lacking = "there is no such finding";
  if (finding.status != status) lacking += " the status is not " + status;
  for (const std::string& detail : details) {
    if (finding.detail.find(detail) == std::string::npos) lacking += " no '" + detail + "'";
  }
  for (const std::string& remedy : remedies) {
    if (finding.remedy.find(remedy) == std::string::npos) {
      lacking += " no '" + remedy + "' in the remedy";
    }
  }
  if (lacking.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << name << ":" << lacking << "; it is " << finding.status
                                     << ": " << finding.detail << " -> " << finding.remedy;
}

}  // namespace symm_test
