// What a caller writes as `address`.
#ifndef SYMM_CORE_ADDRESS_H_
#define SYMM_CORE_ADDRESS_H_

#include <optional>
#include <string>
#include <vector>

#include "core/environment.h"
#include "core/socket.h"

namespace symm {

// Who serves a meeting, and how to reach it.
struct Address {
  enum class Kind {
    kServed,  // symm://…: of symm_address_create, served by the process that made it
    kTcp,     // tcp://host:port: rank 0 serves
    kFile,    // file:///path: rank 0 serves and writes where into the file
    kUnix,    // env:// of a launcher without MASTER_ADDR, all ranks on one host: rank 0 serves
    kStore,   // env:// where a PyTorch store has the port: rank 0 serves, and writes where into it
  };
  Kind kind = Kind::kTcp;
  // kServed: in the order to try, a unix one (of use on host_id only) first; kTcp, kUnix and
  // kStore: one; kFile: none.
  std::vector<Endpoint> endpoints;
  std::string host_id;  // kServed: host_identity() of the server
  std::string token;    // kServed: the secret; else SYMM_TOKEN or the launcher's job id or ""
  std::string path;     // kFile
  // env:// with a port, which may turn out to be a PyTorch store's: what tells this job's entries
  // there from those of others. Else "".
  std::string store_scope;
  bool store_found = false;  // kStore: by a look at the port, which may show another thing later
};

// Parses tcp://, file:// and symm:// addresses. Throws INVALID_ARGUMENT with the text, the fault
// and the form expected. Strict: port 1..65535, absolute path, no trailing junk, no embedded NUL or
// control characters, at most 4096 bytes. `environment` is asked for SYMM_TOKEN.
Address parse_address(const std::string& text, const Environment& environment);
bool is_env_address(const std::string& text);  // exactly "env://"

// A host and a port from elsewhere than an address, with the same checks as tcp://host:port: an
// IPv6 number with or without brackets. Nothing where they are malformed, with *fault saying how.
std::optional<Endpoint> parse_tcp_endpoint(const std::string& host, const std::string& port,
                                           std::string* fault);

// The text of a served address, at most SYMM_ADDRESS_SIZE - 1 characters: endpoints that would not
// fit are left out, last first. Needs one TCP endpoint; takes at most one unix one.
//   symm://<token, 32 hex digits>@<endpoint>[,<endpoint>...]/<host_id, 32 hex digits>[/<unix name>]
std::string format_served_address(const Address& address);

}  // namespace symm

#endif  // SYMM_CORE_ADDRESS_H_
