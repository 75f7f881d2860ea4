package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// The test is run again as the peer of its own ranks.
const peerVariable = "SYMM_TEST_PEER"

func TestMain(m *testing.M) {
	if err := load(os.Getenv("SYMM_LIBRARY")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if address := os.Getenv(peerVariable); address != "" {
		if _, err := create(address, 1, 2, commOptions{timeoutMs: 20000}); err == nil {
			os.Stdout.WriteString("joined\n")
			time.Sleep(time.Minute)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func meeting(t *testing.T) string { return "file://" + filepath.Join(t.TempDir(), "meet") }

func expectFailure(t *testing.T, err error, name, part string) {
	t.Helper()
	e, is := err.(*symmError)
	if !is || statusName(e.status) != name || !strings.Contains(e.message, part) {
		t.Errorf("got %v, want %s with %q", err, name, part)
	}
}

func TestAWaitEndsAtItsDeadlineAndNamesTheRankThatIsMissing(t *testing.T) {
	address := meeting(t)
	options := commOptions{timeoutMs: 20000, waitTimeoutMs: 500}
	var ranks sync.WaitGroup
	ranks.Add(1)
	leave := make(chan bool)
	go func() { // rank 1 joins and then does nothing
		defer ranks.Done()
		c, err := create(address, 1, 2, options)
		if err != nil {
			t.Error(err)
			return
		}
		<-leave
		commFree(c)
	}()
	c, err := create(address, 0, 2, options)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	x := []float32{1}
	expectFailure(t, sumRanks(c, x, x), "SYMM_TIMEOUT", "rank 1")
	if waited := time.Since(start); waited < 400*time.Millisecond || waited > 15*time.Second {
		t.Errorf("waited %v, not half a second", waited)
	}
	commFree(c)
	close(leave)
	ranks.Wait()
}

func TestTheDeathOfAPeerEndsAWaitAndNamesIt(t *testing.T) {
	address := meeting(t)
	peer := exec.Command(os.Args[0])
	peer.Env = append(os.Environ(), peerVariable+"="+address)
	out, err := peer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	defer peer.Wait()
	defer peer.Process.Kill()
	c, err := create(address, 0, 2, commOptions{timeoutMs: 20000})
	if err != nil {
		t.Fatal(err)
	}
	defer commFree(c)
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(200 * time.Millisecond) // by then the wait has begun
		peer.Process.Kill()
	}()
	x := []float32{1}
	expectFailure(t, sumRanks(c, x, x), "SYMM_PEER", "rank 1")
}

func TestEveryGoroutineReadsTheMessageOfItsOwnCall(t *testing.T) {
	var goroutines sync.WaitGroup
	for g := 0; g < 50; g++ {
		goroutines.Add(1)
		go func(own int32) {
			defer goroutines.Done()
			for i := 0; i < 200; i++ {
				_, err := create("file:///nowhere", own, 1, commOptions{})
				want := fmt.Sprintf("rank %d of size 1:", own)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want a message with %q", err, want)
					return
				}
			}
		}(int32(1000 + g))
	}
	goroutines.Wait()
}

// Prints what symm.go repeats of symm.h, for a comparison with the header.
func TestFacts(t *testing.T) {
	path := os.Getenv("SYMM_TEST_FACTS")
	if path == "" {
		t.Skip("SYMM_TEST_FACTS names no file to write")
	}
	fields := map[string][2]uintptr{}
	options := reflect.TypeOf(commOptions{})
	for i := 0; i < options.NumField(); i++ {
		field := options.Field(i)
		name := strings.ToLower(regexp.MustCompile("([A-Z])").ReplaceAllString(field.Name, "_$1"))
		fields[name] = [2]uintptr{field.Offset, field.Type.Size()}
	}
	facts, err := json.Marshal(map[string]interface{}{
		"constants": map[string]int{
			"SYMM_OK": ok, "SYMM_CPU": cpu, "SYMM_FLOAT32": float32Type, "SYMM_SUM": sumOp},
		"structs": map[string]interface{}{
			"symm_comm_options": map[string]interface{}{"size": options.Size(), "fields": fields}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, facts, 0o666); err != nil {
		t.Fatal(err)
	}
}
