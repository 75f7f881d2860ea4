// What serves a meeting: sockets, and where others find them.
#ifndef SYMM_CORE_SERVING_H_
#define SYMM_CORE_SERVING_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/address_file.h"
#include "core/deadline.h"
#include "core/listener.h"
#include "core/star.h"
#include "core/torch_store.h"

namespace symm {

// Rank 0's duty to serve. What it opened, and where a client (rank 0 itself too) finds it.
struct Served {
  std::vector<std::shared_ptr<Listener>> listeners;
  Address address;
  std::vector<std::string> hosts;  // for the star, as others see them
  std::shared_ptr<AddressFile> file;
  std::shared_ptr<StoreEntry> entry;
};

// Where this communicator's address is written down, where that is so: a path, or a key.
std::string place_of(const Address& address, const std::string& name);

// What rank 0 does before every attempt to find the server, which may be itself. True where
// another process has the port; *problem says why a store's entry could not be made yet.
bool serve(const std::string& place, Deadline deadline, const Address& address, Served* served,
           std::string* problem);

// Turns *address into a PyTorch store's if that is what listens there and the address may mean it.
bool turn_to_store(Deadline deadline, Address* address, std::string* problem);

// What rank 0 wrote there; nothing, with *problem, as long as it has not. Throws StoreError.
std::optional<Address> read_store_entry(TorchStore& store, const std::string& key,
                                        std::string* problem);

// The meeting of this rank 0 has failed: those who come late find it by what is written down as
// long as somebody is there to tell them.
void keep_for_latecomers(Served& served);

// Where others may reach the star of rank 0 by TCP.
std::vector<std::string> star_hosts(const Address& address, const Served& served);

// Opens what a star needs to be joined: on this host a unix socket, from others TCP. `listen_hosts`
// are hosts of this process as others see them; empty: ranks of this host only.
StarAddress open_star(const StarHub& hub, const std::vector<std::string>& listen_hosts,
                      std::vector<std::shared_ptr<Listener>>* listeners);

// A new served address (symm_address_create) and its listeners, which live as long as the process.
std::string create_served_address(const char* host);

}  // namespace symm

#endif  // SYMM_CORE_SERVING_H_
