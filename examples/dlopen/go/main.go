// One rank of an all-reduce, by Go and purego: no cgo, no C compiler.
//
//	CGO_ENABLED=0 go build -o all_reduce .
//	./all_reduce tcp://127.0.0.1:29500 0 2 & ./all_reduce tcp://127.0.0.1:29500 1 2
//
// SYMM_LIBRARY: which library to load ("libsymm.so.0").
package main

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"unsafe"
)

const count = 1000

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 3 {
		return errors.New("usage: all_reduce ADDRESS RANK SIZE")
	}
	rank, err := number(arguments[1])
	if err != nil {
		return err
	}
	size, err := number(arguments[2])
	if err != nil {
		return err
	}
	path := os.Getenv("SYMM_LIBRARY")
	if path == "" {
		path = "libsymm.so.0"
	}
	if err := load(path); err != nil {
		return err
	}

	comm, err := create(arguments[0], rank, size, commOptions{timeoutMs: 60000})
	if err != nil {
		return err
	}
	defer commFree(comm)

	x := make([]float32, count)
	for i := range x {
		x[i] = float32(1 / float64(1+i+1000*int(rank)))
	}
	sum := make([]float32, count)
	if err := sumRanks(comm, x, sum); err != nil {
		return err
	}

	// The same from a window, memory that every rank sees: no copy on the way in.
	byteCount := count * unsafe.Sizeof(x[0])
	var win window
	var data unsafe.Pointer
	if err := call(func() status { return windowAlloc(comm, byteCount, nil, &win) }); err != nil {
		return err
	}
	defer windowFree(win)
	if err := call(func() status { return windowData(win, rank, &data) }); err != nil {
		return err
	}
	// Not the garbage collector's memory: it must not be used once the window is freed.
	copy(unsafe.Slice((*float32)(data), count), x)
	again := make([]float32, count)
	err = call(func() status {
		return windowAllReduce(win, 0, unsafe.Pointer(&again[0]), count, float32Type, sumOp, nil)
	})
	if err != nil {
		return err
	}
	if !bytes.Equal(bits(sum), bits(again)) {
		return errors.New("all_reduce: the window's sum has other bits")
	}

	digest := fnv.New64a()
	digest.Write(bits(sum))
	fmt.Printf("rank %d of %d: sum[0] = %.6f, digest %016x\n", rank, size, sum[0], digest.Sum64())
	return nil
}

func number(text string) (int32, error) {
	value, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("all_reduce: '%s' is not a rank or a size", text)
	}
	return int32(value), nil
}

func bits(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}
