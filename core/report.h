// The JSON of symm_report and symm_plan. Keys are only ever added.
#ifndef SYMM_CORE_REPORT_H_
#define SYMM_CORE_REPORT_H_

#include <string>

#include "core/call.h"
#include "core/comm.h"

namespace symm {

// About the library, this process and the machine; about `comm` too where it is not null.
std::string report(const Comm* comm);

// {algorithm, blocks, threads, reason, faster: [{algorithm, why_not}]}
std::string plan(const Comm& comm, const Call& call);

}  // namespace symm

#endif  // SYMM_CORE_REPORT_H_
