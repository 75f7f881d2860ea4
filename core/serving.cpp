#include "core/serving.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/digest.h"
#include "core/error.h"
#include "core/process.h"

namespace symm {
namespace {

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

Served serve_everywhere(const char* host, const std::string& token) {
  Served served;
  Address& address = served.address;
  address.kind = Address::Kind::kServed;
  address.host_id = host_identity();
  address.token = token;
  Endpoint unix_endpoint;
  unix_endpoint.unix_name = "symm-" + random_hex(8);
  served.listeners.push_back(Listener::open(unix_endpoint, true, address.token, nullptr));
  Endpoint tcp;
  if (host != nullptr) {
    tcp.host = host;
    // A name that others know this host by need not be one this host can bind: then every
    // interface.
    bool in_use = false;
    try {
      served.listeners.push_back(Listener::open(tcp, true, address.token, &in_use));
    } catch (const Error&) {
      if (is_loopback(tcp.host)) throw;
      served.listeners.push_back(Listener::open(Endpoint{}, true, address.token, nullptr));
    }
    served.hosts = {host};
  } else {
    served.listeners.push_back(Listener::open(Endpoint{}, true, address.token, nullptr));
    served.hosts = interface_addresses();
  }
  const uint16_t port = served.listeners.back()->endpoint().port;
  address.endpoints.push_back(unix_endpoint);
  for (const std::string& name : served.hosts) {
    Endpoint endpoint;
    endpoint.host = name;
    endpoint.port = port;
    address.endpoints.push_back(endpoint);
  }
  return served;
}

// What serves for as long as the process; a forked child has none of its parent's. Under the lock
// kServedAddresses.
struct Kept {
  uint64_t generation = 0;
  std::map<std::string, Served> by_host;
  std::map<std::string, std::string> token_by_key;  // of stores
};
Kept& kept() {
  static Kept* instance = new Kept;
  if (instance->generation != process_generation()) {
    *instance = Kept{process_generation(), {}, {}};
  }
  return *instance;
}

// The token of one process's meetings by way of one entry: always the same, so that a rank that
// repeats a failed call at once, and finds rank 0's last entry, sits down in the next meeting.
std::string token_in_store(const std::string& key) {
  std::lock_guard lock(global_mutex(GlobalLock::kServedAddresses));
  auto& token = kept().token_by_key[key];
  if (token.empty()) token = random_hex(16);
  return token;
}

// A rank that comes after its meeting has failed must still find its way to be told: what is
// written down, and both sockets, stay as long as the first one, whose first guest is rank 0
// itself.
void keep_together(const Served& served, std::shared_ptr<void> written) {
  served.listeners.front()->keep(
      std::make_shared<std::pair<std::shared_ptr<Listener>, std::shared_ptr<void>>>(
          served.listeners.back(), std::move(written)));
}

// Writes where this process serves into the file or the store, and serves from then on.
void serve_where_written(const std::string& place, Deadline deadline, const Address& address,
                         Served* served, std::string* problem) {
  const auto made_at = [&](Served made) {
    served->listeners = std::move(made.listeners);
    served->hosts = std::move(made.hosts);
    served->address.token = made.address.token;
    return made.address;
  };
  if (address.kind == Address::Kind::kStore) {
    // The store may come later than the sockets.
    if (served->listeners.empty()) {
      served->address = made_at(serve_everywhere(nullptr, token_in_store(place)));
    }
    served->entry = StoreEntry::put(address.endpoints.at(0), place,
                                    format_served_address(served->address), deadline, problem);
    return;
  }
  served->file =
      AddressFile::claim(place, [&] { return made_at(serve_everywhere(nullptr, random_hex(16))); });
  if (served->file) keep_together(*served, served->file);
}

}  // namespace

// Communicators that are created at once over one address have names of their own, and files or
// entries too: each comes and goes with its own meeting.
std::string place_of(const Address& address, const std::string& name) {
  if (!address.store_scope.empty()) return "symm/" + digest_hex(address.store_scope + '/' + name);
  if (address.kind != Address::Kind::kFile || name.empty()) return address.path;
  return text(address.path, ".", digest_hex(name).substr(0, 16));
}

bool turn_to_store(Deadline deadline, Address* address, std::string* problem) {
  if (address->kind != Address::Kind::kTcp || address->store_scope.empty()) return false;
  if (!TorchStore::connect(address->endpoints.at(0), deadline, problem)) return false;
  address->kind = Address::Kind::kStore;
  address->store_found = true;
  return true;
}

bool serve(const std::string& place, Deadline deadline, const Address& address, Served* served,
           std::string* problem) {
  switch (address.kind) {
    case Address::Kind::kServed:
      return false;  // by the process that made it
    case Address::Kind::kTcp:
    case Address::Kind::kUnix: {
      // What was opened for a store that is not there any more.
      if (served->address.kind == Address::Kind::kServed) *served = Served();
      if (!served->listeners.empty()) return false;
      const Endpoint& endpoint = address.endpoints.at(0);
      if (!endpoint.is_unix()) {
        const bool everywhere = endpoint.host == "0.0.0.0" || endpoint.host == "::";
        served->hosts = everywhere ? interface_addresses() : std::vector{endpoint.host};
      }
      bool in_use = false;
      // Taken: by another communicator's rank 0, whose process then serves this one too, or by
      // something else, which the search finds out.
      auto listener = Listener::open(endpoint, true, address.token, &in_use);
      if (!listener) return true;
      served->listeners.push_back(std::move(listener));
      return false;
    }
    case Address::Kind::kFile:
    case Address::Kind::kStore:
      if (!served->file && !served->entry) {
        serve_where_written(place, deadline, address, served, problem);
      }
      return false;
  }
  return false;
}

std::optional<Address> read_store_entry(TorchStore& store, const std::string& key,
                                        std::string* problem) {
  const auto value = store.get(key);
  if (!value) {
    *problem = text("rank 0 has left no word in ", store.name());
    return std::nullopt;
  }
  try {
    Address address = parse_address(*value, process_environment());
    if (address.kind == Address::Kind::kServed) return address;
  } catch (const Error&) {
    // Not of symm, or of a version that writes otherwise.
  }
  *problem = text(store.name(), " has another's entry of this name");
  return std::nullopt;
}

void keep_for_latecomers(Served& served) {
  if (served.entry) {
    keep_together(served, StoreEntry::ending_elsewhere(std::move(served.entry)));
  }
}

std::vector<std::string> star_hosts(const Address& address, const Served& served) {
  if (address.kind == Address::Kind::kUnix) return {};
  if (address.kind != Address::Kind::kServed && !served.hosts.empty()) return served.hosts;
  // Served by another process. On its host it is known how others name this one.
  if (address.host_id != host_identity()) return interface_addresses();
  std::vector<std::string> hosts;
  for (const Endpoint& endpoint : address.endpoints) {
    if (!endpoint.is_unix()) hosts.push_back(endpoint.host);
  }
  return hosts;
}

StarAddress open_star(const StarHub& hub, const std::vector<std::string>& listen_hosts,
                      std::vector<std::shared_ptr<Listener>>* listeners) {
  StarAddress star;
  star.uid = hub.uid();
  Endpoint unix_endpoint;
  unix_endpoint.unix_name = "symm-" + random_hex(8);
  listeners->push_back(Listener::open(unix_endpoint, false, "", nullptr));
  star.endpoints.push_back(unix_endpoint);
  const bool reachable = std::any_of(listen_hosts.begin(), listen_hosts.end(),
                                     [](const std::string& host) { return !is_loopback(host); });
  if (!reachable) return star;
  // One address: listen there alone. Several, or a name that is not this host's own: everywhere.
  std::shared_ptr<Listener> listener;
  if (listen_hosts.size() == 1) {
    try {
      Endpoint endpoint;
      endpoint.host = listen_hosts[0];
      listener = Listener::open(endpoint, false, "", nullptr);
    } catch (const Error&) {
      listener = nullptr;
    }
  }
  if (!listener) listener = Listener::open(Endpoint{}, false, "", nullptr);
  for (const std::string& host : listen_hosts) {
    if (is_loopback(host)) continue;
    Endpoint endpoint;
    endpoint.host = host;
    endpoint.port = listener->endpoint().port;
    star.endpoints.push_back(endpoint);
  }
  listeners->push_back(std::move(listener));
  return star;
}

std::string create_served_address(const char* host) {
  if (host != nullptr) {
    std::string fault;
    if (!parse_tcp_endpoint(host, "1", &fault)) {
      throw Error(SYMM_INVALID_ARGUMENT, text("host \"", host, "\": ", fault,
                                              "; give a name or number of this host, or NULL"));
    }
  }
  // One listener of each kind serves all addresses of a process that name the same host.
  std::lock_guard lock(global_mutex(GlobalLock::kServedAddresses));
  auto& by_host = kept().by_host;
  const std::string key = host == nullptr ? "" : host;
  auto found = by_host.find(key);
  if (found == by_host.end()) {
    found = by_host.emplace(key, serve_everywhere(host, random_hex(16))).first;
  } else {
    // The sockets are the first address's; the secret is this one's own.
    found->second.address.token = random_hex(16);
    for (const auto& listener : found->second.listeners) {
      listener->serve_token(found->second.address.token);
    }
  }
  return format_served_address(found->second.address);
}

}  // namespace symm
