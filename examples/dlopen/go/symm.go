package main

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// From symm.h: purego checks no types, so these must be the header's.
type (
	status int32
	comm   uintptr // C's memory, of no concern to the garbage collector
	window uintptr
)

const (
	ok          = 0  // SYMM_OK
	cpu         = -1 // SYMM_CPU
	float32Type = 7  // SYMM_FLOAT32
	sumOp       = 0  // SYMM_SUM
)

type commOptions struct {
	size          uintptr
	name          *byte
	ncclPath      *byte
	error         *byte
	errorSize     uintptr
	scratchBytes  uintptr
	timeoutMs     int32
	waitTimeoutMs int32
	flags         uint32
	reserved      uint32
}

var (
	statusName func(status) string
	lastError  func() string
	commCreate func(address string, rank, size, device int32, options *commOptions, out *comm) status
	commFree   func(comm) // not called, the program's end is a death to the others: Go runs no atexit

	windowAlloc func(c comm, bytes uintptr, options unsafe.Pointer, out *window) status
	windowData  func(w window, rank int32, pointer *unsafe.Pointer) status
	windowFree  func(window)

	allReduce func(c comm, input, output unsafe.Pointer, count uintptr, dtype, op int32,
		stream unsafe.Pointer) status
	windowAllReduce func(w window, offset uintptr, output unsafe.Pointer, count uintptr,
		dtype, op int32, stream unsafe.Pointer) status
)

func load(path string) error {
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return err
	}
	purego.RegisterLibFunc(&statusName, library, "symm_status_name")
	purego.RegisterLibFunc(&lastError, library, "symm_last_error")
	purego.RegisterLibFunc(&commCreate, library, "symm_comm_create")
	purego.RegisterLibFunc(&commFree, library, "symm_comm_free")
	purego.RegisterLibFunc(&windowAlloc, library, "symm_window_alloc")
	purego.RegisterLibFunc(&windowData, library, "symm_window_data")
	purego.RegisterLibFunc(&windowFree, library, "symm_window_free")
	purego.RegisterLibFunc(&allReduce, library, "symm_all_reduce")
	purego.RegisterLibFunc(&windowAllReduce, library, "symm_window_all_reduce")
	return nil
}

// A symmError is a failed call: its status, and the message of the library.
type symmError struct {
	status  status
	message string
}

func (e *symmError) Error() string {
	return fmt.Sprintf("%s: %s", statusName(e.status), e.message)
}

// call makes one call of the library. A goroutine may go on on another thread after any call, and
// the last error is a thread's own: it is pinned to one until the message has been read.
func call(f func() status) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if s := f(); s != ok {
		return &symmError{s, lastError()}
	}
	return nil
}

func create(address string, rank, size int32, options commOptions) (comm, error) {
	var c comm
	options.size = unsafe.Sizeof(options)
	err := call(func() status { return commCreate(address, rank, size, cpu, &options, &c) })
	return c, err
}

func sumRanks(c comm, input, output []float32) error {
	return call(func() status {
		return allReduce(c, unsafe.Pointer(&input[0]), unsafe.Pointer(&output[0]),
			uintptr(len(input)), float32Type, sumOp, nil)
	})
}
