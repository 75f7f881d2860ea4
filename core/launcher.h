// What a launcher's variables say: env://.
#ifndef SYMM_CORE_LAUNCHER_H_
#define SYMM_CORE_LAUNCHER_H_

#include <string>

#include "core/address.h"
#include "core/environment.h"

namespace symm {

struct Launcher {
  std::string name;  // "torchrun", "RANK/WORLD_SIZE", "Open MPI", "PMI", "Slurm"
  int rank = -1;
  int size = -1;
  int local_rank = -1;  // -1: not said
  std::string job;      // job id, "" where the launcher has none
  Address address;
};

// env://. The first of these whose rank or size variable is set decides; the others are not looked
// at:
//
//   torchrun, and any other that sets them: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
//   Open MPI: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   PMI (MPICH, Intel MPI, Cray): PMI_RANK, PMI_SIZE, and MPI_LOCALRANKID, MPI_LOCALNRANKS or
//     PMI_LOCAL_RANK, PMI_LOCAL_SIZE
//   Slurm's srun: SLURM_PROCID, SLURM_STEP_NUM_TASKS (else SLURM_NTASKS), SLURM_LOCALID
//
// A launcher is nearer the program the earlier it comes: mpirun is run inside a Slurm allocation,
// whose variables then count for the allocation, and torchrun inside either. Where MASTER_ADDR and
// MASTER_PORT are set, rank 0 serves there, or the ranks meet by way of the PyTorch store that has
// the port: always with TORCHELASTIC_USE_AGENT_STORE=True, else if one turns out to be there. Open
// MPI, PMI and Slurm do not set the two; on one host the ranks then meet at an abstract unix socket
// named by user and job.
//
// Throws INVALID_ARGUMENT naming the missing or malformed variable, its value and what to set.
Launcher read_launcher(const Environment& environment);

// The local rank alone, -1 where no launcher says it: for SYMM_LOCAL_GPU with any address. Never
// throws for what the variables hold.
int launcher_local_rank(const Environment& environment);

}  // namespace symm

#endif  // SYMM_CORE_LAUNCHER_H_
