#include "core/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/digest.h"
#include "core/error.h"
#include "core/quote.h"

namespace symm {
namespace {

constexpr std::string_view kSetMaster =
    "set MASTER_ADDR to a name or number of rank 0's host and MASTER_PORT to a free port there, on "
    "every rank, or use tcp://host:port or file:///path";

std::optional<int> parse_number(const std::string& digits) {
  int value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  // from_chars takes a minus sign, and only that.
  if (error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

using Names = std::vector<const char*>;

// Which variables say what. Of several names for one thing the first that is set counts.
struct Scheme {
  const char* launcher;
  const char* rank;
  Names size;
  Names local_rank;
  Names local_size;
};

const Scheme& torch() {
  static const Scheme scheme = {"RANK/WORLD_SIZE", "RANK", {"WORLD_SIZE"}, {"LOCAL_RANK"}, {}};
  return scheme;
}

const Scheme& open_mpi() {
  static const Scheme scheme = {"Open MPI",
                                "OMPI_COMM_WORLD_RANK",
                                {"OMPI_COMM_WORLD_SIZE"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE"}};
  return scheme;
}

const Scheme& pmi() {
  static const Scheme scheme = {"PMI",
                                "PMI_RANK",
                                {"PMI_SIZE"},
                                {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
                                {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}};
  return scheme;
}

// The step's number of tasks before the job's: srun may start fewer than the job has.
const Scheme& slurm() {
  static const Scheme scheme = {
      "Slurm", "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, {"SLURM_LOCALID"}, {}};
  return scheme;
}

// The variables of one launcher; its name stands in every message about them.
class Variables {
 public:
  Variables(const Environment& environment, const Scheme& scheme, std::string launcher)
      : environment_(environment), scheme_(scheme), launcher_(std::move(launcher)) {}

  [[noreturn]] void refuse(const std::string& fault,
                           symm_status status = SYMM_INVALID_ARGUMENT) const {
    throw Error(status, text("address \"env://\" (", launcher_, "): ", fault));
  }

  std::optional<std::string> value(const char* name) const { return environment_(name); }

  // The first value that is set and not empty, else "".
  std::string first_value(const Names& names) const {
    for (const char* name : names) {
      if (const auto found = value(name); found && !found->empty()) return *found;
    }
    return "";
  }

  const char* first_set(const Names& names) const {
    for (const char* name : names) {
      if (value(name)) return name;
    }
    return nullptr;
  }

  // `name` must be set; `meaning` says in a message what it should be.
  int number(const char* name, int least, int most, const std::string& meaning) const {
    const std::string written = *value(name);
    const std::optional<int> parsed = parse_number(written);
    if (!parsed || *parsed < least || *parsed > most) {
      refuse(text(name, " is ", quoted(written), ", expected ", meaning,
                  "; set it so, or unset all of ", launcher_, "'s variables"));
    }
    return *parsed;
  }

  int optional_number(const Names& names, int least, int most, const std::string& meaning) const {
    const char* name = first_set(names);
    return name == nullptr ? -1 : number(name, least, most, meaning);
  }

  // Rank, size and local rank, each within the others.
  Launcher claim() const {
    const char* size = first_set(scheme_.size);
    if (size == nullptr) {
      refuse(text(scheme_.rank, " is ", quoted(*value(scheme_.rank)), ", but ", scheme_.size[0],
                  " is not set; set it to the number of ranks, or unset ", scheme_.rank));
    }
    if (!value(scheme_.rank)) {
      refuse(text(size, " is ", quoted(*value(size)), ", but ", scheme_.rank,
                  " is not set; set it to this process's rank, or unset ", size));
    }
    Launcher found;
    found.name = launcher_;
    found.size = number(size, 1, INT_MAX, "a number of ranks, 1 or more");
    const std::string rank_range =
        text("a rank from 0 to ", found.size - 1, " (", size, " is ", found.size, ")");
    found.rank = number(scheme_.rank, 0, found.size - 1, rank_range);
    found.local_rank =
        optional_number(scheme_.local_rank, 0, found.size - 1, "a local " + rank_range.substr(2));
    return found;
  }

  // Of MASTER_ADDR and MASTER_PORT; nothing where neither is set.
  std::optional<Endpoint> master() const {
    const auto host = value("MASTER_ADDR");
    const auto port = value("MASTER_PORT");
    if (!host && !port) return std::nullopt;
    if (!host || !port) {
      refuse(text(host ? "MASTER_ADDR" : "MASTER_PORT", " is ", quoted(host ? *host : *port),
                  ", but ", host ? "MASTER_PORT" : "MASTER_ADDR", " is not set; ", kSetMaster));
    }
    std::string fault;
    const auto endpoint = parse_tcp_endpoint(*host, *port, &fault);
    if (!endpoint) {
      refuse(text("MASTER_ADDR is ", quoted(*host), " and MASTER_PORT is ", quoted(*port), ": ",
                  fault, "; ", kSetMaster));
    }
    return endpoint;
  }

  const Environment& environment() const { return environment_; }

 private:
  const Environment& environment_;
  const Scheme& scheme_;
  std::string launcher_;
};

bool claims_ranks(const Environment& environment, const Scheme& scheme) {
  return environment(scheme.rank).has_value() ||
         std::any_of(scheme.size.begin(), scheme.size.end(),
                     [&](const char* name) { return environment(name).has_value(); });
}

// Rank 0 serves at MASTER_ADDR:MASTER_PORT, unless that port is a PyTorch store's.
void set_master(const Endpoint& master, const Environment& environment, Launcher* found) {
  Address& address = found->address;
  // torchrun says that its agent keeps the store; whether the program's own torch.distributed does
  // is seen when the ranks meet.
  const bool of_agent = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  address.kind = of_agent ? Address::Kind::kStore : Address::Kind::kTcp;
  address.endpoints = {master};
  address.token = read_token(environment, found->job);
  // A store may serve several runs. Not TORCHELASTIC_RESTART_COUNT: agents count for themselves, so
  // that it may differ between the hosts of one job.
  address.store_scope = text("run ", environment("TORCHELASTIC_RUN_ID").value_or(""), '/',
                             environment("SYMM_TOKEN").value_or(""));
}

Launcher read_torch(const Environment& environment) {
  const auto run_id = environment("TORCHELASTIC_RUN_ID");
  const Variables variables(environment, torch(), run_id ? "torchrun" : torch().launcher);
  Launcher found = variables.claim();
  const std::optional<Endpoint> master = variables.master();
  if (!master) {
    variables.refuse(text("MASTER_ADDR and MASTER_PORT are not set; ", kSetMaster));
  }
  // "none" is what torchrun calls every run without --rdzv-id: it tells no two of them apart.
  if (run_id && *run_id != "none") found.job = *run_id;
  set_master(*master, environment, &found);
  return found;
}

// The name of the socket that the ranks of a job on one host meet at. Of the user too: two users'
// job ids may be equal. A digest, because job ids may be long and hold anything.
std::string socket_name(const std::string& launcher, const std::string& job) {
  return "symm-" + std::to_string(geteuid()) + "-" + digest_hex(launcher + '/' + job);
}

// Where the ranks of a launcher without MASTER_ADDR of its own meet. `spread` says in a message how
// they are known, or not known, to be on several hosts.
void set_address(const Variables& variables, bool one_host, const std::string& spread,
                 Launcher* found) {
  if (const auto master = variables.master()) {
    set_master(*master, variables.environment(), found);
    return;
  }
  Address& address = found->address;
  address.token = read_token(variables.environment(), found->job);
  if (!one_host && found->size > 1) {
    variables.refuse(text(spread, ", and MASTER_ADDR and MASTER_PORT are not set; ", kSetMaster));
  }
  std::string job = found->job.empty() ? address.token : found->job;
  if (job.empty() && found->size == 1) job = random_hex(16);  // there is nobody to meet
  if (job.empty()) {
    variables.refuse(
        text("it gives no job id that would tell this job from another; set SYMM_TOKEN "
             "to a text of this job's own on every rank, or ",
             kSetMaster));
  }
  address.kind = Address::Kind::kUnix;
  address.endpoints.resize(1);
  address.endpoints[0].unix_name = socket_name(found->name, job);
}

void set_address_by_local_size(const Variables& variables, const Names& names, Launcher* found) {
  const int local_size = variables.optional_number(
      names, 1, found->size, text("the number of ranks of this host, 1 to ", found->size));
  const std::string spread = local_size < 0
                                 ? text(names[0], " does not say whether all ranks are on one host")
                                 : text(variables.first_set(names), " is ", local_size, " of ",
                                        found->size, " ranks, so they are on several hosts");
  set_address(variables, local_size == found->size, spread, found);
}

Launcher read_open_mpi(const Environment& environment) {
  const Variables variables(environment, open_mpi(), open_mpi().launcher);
  Launcher found = variables.claim();
  // The job id is made of mpirun's pid and may come again, in another container on one network even
  // at once; the transport key, where there is one, is random.
  found.job = variables.first_value({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  const std::string key = variables.first_value({"OMPI_MCA_orte_precondition_transports"});
  if (!found.job.empty() && !key.empty()) found.job += "/" + key;
  set_address_by_local_size(variables, open_mpi().local_size, &found);
  return found;
}

Launcher read_pmi(const Environment& environment) {
  const Variables variables(environment, pmi(), pmi().launcher);
  Launcher found = variables.claim();
  found.job = variables.first_value({"PMI_JOBID", "I_MPI_HYDRA_UUID"});
  set_address_by_local_size(variables, pmi().local_size, &found);
  return found;
}

Launcher read_slurm(const Environment& environment) {
  const Variables variables(environment, slurm(), slurm().launcher);
  // salloc and sbatch set the job's number of tasks for a shell or script that runs once; sbatch
  // even a rank, 0. Taken as they stand, that one process would wait for ranks that nobody started.
  const bool step = variables.first_set({"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"});
  if (!step && variables.first_value({"SLURM_NTASKS"}) != "1") {
    variables.refuse(
        "SLURM_STEP_ID is not set, so this is the job's script or shell and not one of its tasks; "
        "start the program with srun");
  }
  Launcher found = variables.claim();
  found.job = variables.first_value({"SLURM_JOB_ID", "SLURM_JOBID"});
  const std::string step_id = variables.first_value({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (!found.job.empty() && !step_id.empty()) found.job += "." + step_id;
  const Names nodes_names = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"};
  const int nodes =
      variables.optional_number(nodes_names, 1, INT_MAX, "a number of nodes, 1 or more");
  const std::string spread =
      nodes < 0 ? "SLURM_STEP_NUM_NODES does not say whether all ranks are on one host"
                : text(variables.first_set(nodes_names), " is ", nodes,
                       ", so the ranks are on several hosts");
  set_address(variables, nodes == 1, spread, &found);
  return found;
}

// srun --mpi=pmi2 sets PMI's rank and size beside Slurm's equal ones, but not how many ranks share
// the host: that is then Slurm's to say. mpiexec inside an allocation differs from Slurm or says it
// itself.
bool pmi_is_slurms(const Environment& environment) {
  const Variables variables(environment, slurm(), slurm().launcher);
  return variables.first_set(pmi().local_size) == nullptr && environment("SLURM_PROCID") &&
         environment("SLURM_PROCID") == environment("PMI_RANK") &&
         variables.first_value(slurm().size) == variables.first_value(pmi().size);
}

}  // namespace

Launcher read_launcher(const Environment& environment) {
  if (claims_ranks(environment, torch())) return read_torch(environment);
  if (claims_ranks(environment, open_mpi())) return read_open_mpi(environment);
  if (claims_ranks(environment, pmi()) && !pmi_is_slurms(environment)) return read_pmi(environment);
  if (claims_ranks(environment, slurm())) return read_slurm(environment);
  throw Error(
      SYMM_INVALID_ARGUMENT,
      "address \"env://\": no launcher's variables are set: neither RANK and WORLD_SIZE "
      "(torchrun), OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), PMI_RANK and PMI_SIZE (MPICH, "
      "Intel MPI), nor SLURM_PROCID and SLURM_STEP_NUM_TASKS (srun); start the program with "
      "one of these, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

int launcher_local_rank(const Environment& environment) {
  for (const Scheme* scheme : {&torch(), &open_mpi(), &pmi(), &slurm()}) {
    for (const char* name : scheme->local_rank) {
      if (const auto written = environment(name)) return parse_number(*written).value_or(-1);
    }
  }
  return -1;
}

}  // namespace symm
