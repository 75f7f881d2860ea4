// One rank's part of an agreed step: what goes wrong in it is not thrown, but told to every rank.
#ifndef SYMM_CORE_ATTEMPT_H_
#define SYMM_CORE_ATTEMPT_H_

#include <new>

#include "core/error.h"
#include "core/messages.h"

namespace symm {

inline Failure failure_of(const Error& e) { return {e.status(), e.rank(), e.what()}; }

template <class Part>
Failure attempt(Part part) {
  try {
    part();
    return {};
  } catch (const Error& e) {
    return failure_of(e);
  } catch (const WireError& e) {
    return {SYMM_INTERNAL, kNoRank, text("a message of another rank: ", e.what())};
  } catch (const std::bad_alloc&) {
    return {SYMM_OUT_OF_MEMORY, kNoRank, "no memory"};
  }
}

}  // namespace symm

#endif  // SYMM_CORE_ATTEMPT_H_
