// What a caller writes as `address`, and what a launcher's variables say.
#ifndef SYMM_CORE_ADDRESS_H_
#define SYMM_CORE_ADDRESS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/socket.h"

namespace symm {

// Who serves a meeting, and how to reach it.
struct Address {
  enum class Kind {
    kServed,  // symm://…: of symm_address_create, served by the process that made it
    kTcp,     // tcp://host:port: rank 0 serves
    kFile,    // file:///path: rank 0 serves and writes where into the file
    kUnix,    // env:// of a launcher without MASTER_ADDR, all ranks on one host: rank 0 serves
  };
  Kind kind = Kind::kTcp;
  std::vector<Endpoint> endpoints;  // kServed: in the order to try; kTcp, kUnix: one; kFile: none
  std::string host_id;              // kServed: host_identity() of the server
  std::string token;                // kServed: the secret; else SYMM_TOKEN or the launcher's job id or ""
  std::string path;                 // kFile
};

// What env:// finds out. Which launcher, rank, size, local rank, and the address.
struct Launcher {
  std::string name;  // "torchrun", "Open MPI", "PMI", "Slurm", "RANK/WORLD_SIZE"
  int rank = -1;
  int size = -1;
  int local_rank = -1;   // -1: not said
  std::string job;       // job id, "" where the launcher has none
  Address address;
};

// The environment as a function, so that tests need not change the process's own.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment process_environment();

// Parses tcp://, file:// and symm:// addresses. Throws INVALID_ARGUMENT with the text, the place and
// the forms that exist. Strict: port 1..65535, absolute path, no trailing junk, no embedded NUL or
// control characters, at most 4096 bytes. `environment` is asked for SYMM_TOKEN.
Address parse_address(const std::string& text, const Environment& environment);
bool is_env_address(const std::string& text);  // exactly "env://"

// env://. Throws INVALID_ARGUMENT naming the missing or malformed variable, its value and what to set;
// UNSUPPORTED under TORCHELASTIC_USE_AGENT_STORE=True with the remedy.
Launcher read_launcher(const Environment& environment);

// symm://… text of a served address; at most SYMM_ADDRESS_SIZE - 1 characters: endpoints that would
// not fit are left out, last first.
std::string format_served_address(const Address& address);

}  // namespace symm

#endif  // SYMM_CORE_ADDRESS_H_
