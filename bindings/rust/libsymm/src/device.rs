//! Where a rank works.

use crate::sys;

/// Where a rank's memory is and its arithmetic is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Device {
    /// Memory and arithmetic of the host.
    Cpu,
    /// The GPU of this CUDA ordinal in this process.
    Gpu(u32),
    /// The only visible GPU, or else the one numbered by the launcher's local rank. A communicator's
    /// own [`device`](crate::Comm::device) is then a [`Device::Gpu`].
    LocalGpu,
    /// The CUDA runtime's current device of the calling thread. A communicator's own
    /// [`device`](crate::Comm::device) is then a [`Device::Gpu`].
    CurrentGpu,
}

impl Device {
    pub(crate) fn to_code(self) -> i32 {
        match self {
            Device::Cpu => sys::symm_device::SYMM_CPU.0,
            // An ordinal that no machine has: the library refuses it, and tells the other ranks.
            Device::Gpu(ordinal) => i32::try_from(ordinal).unwrap_or(i32::MAX),
            Device::LocalGpu => sys::symm_device::SYMM_LOCAL_GPU.0,
            Device::CurrentGpu => sys::symm_device::SYMM_CURRENT_GPU.0,
        }
    }

    /// The device of a communicator, which is an ordinal or the CPU.
    pub(crate) fn from_code(code: i32) -> Device {
        u32::try_from(code).map_or(Device::Cpu, Device::Gpu)
    }
}
