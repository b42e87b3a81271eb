// Package e2e_test runs the real binary as a user would: a process of its own, real
// PostgreSQL, real Temporal, real HTTP receivers that check every signature with the
// library which Standard Webhooks gives to receivers.
//
// Most tests share one instance, each with a tenant of its own. Those that kill
// something have their own. How many of each kind run at a time is bounded: a test that waits for its place keeps no other
// from running. EVERPOST_TEST_BINARY names a binary to test instead of building one.
// EVERPOST_TEST_SHAPE has the shared instance run as several processes; the other tests are skipped then.
package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// besideShared and ownInstances bound the tests that run at a time: on the shared instance, which wait much more than they
// compute, and on instances of their own, of which each start is work for both cores.
var (
	besideShared = newPlaces(12)
	ownInstances = newPlaces(3)
)

// atOnce lets all tests begin, and wait for their places.
const atOnce = "200"

// binary is the path of what is tested; TestMain sets it.
var binary string

func TestMain(m *testing.M) {
	if program := os.Getenv(lazyInit); program != "" {
		os.Exit(beLazyInit(program))
	}
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	begun := time.Now()
	work, err := os.MkdirTemp("", "everpost-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(work) }()
	if binary, err = build(work); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: build the binary:", err)
		return 1
	}
	built := time.Since(begun)
	code = m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: the shared instance did not stop cleanly:", err)
		code = 1
	}
	if !keptContract() {
		code = 1
	}
	fmt.Fprintf(os.Stdout, "e2e: %.0f s, of which building the binary took %.0f s\n", time.Since(begun).Seconds(), built.Seconds())
	return code
}

// build makes the binary, unless one is given.
func build(work string) (string, error) {
	if given := os.Getenv("EVERPOST_TEST_BINARY"); given != "" {
		return filepath.Abs(given)
	}
	out := filepath.Join(work, "everpost")
	command := exec.Command("go", "build", "-buildvcs=false", "-o", out, "..")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	return out, command.Run()
}

// The shared instance, started by the first test that needs it.
var (
	sharedMu       sync.Mutex
	sharedInstance *instance
	errShared      error
)

// shared is the instance that most tests use.
func shared(t *testing.T) *instance {
	t.Helper()
	besideShared.take(t)
	return startShared(t)
}

// sharedTemporal is the address of its Temporal, for an installation of the test's own, which takes its place first.
func sharedTemporal(t *testing.T) string {
	t.Helper()
	ownInstances.take(t)
	return startShared(t).addr["temporal"]
}

// startShared starts the shared instance, unless another test has.
func startShared(t *testing.T) *instance {
	t.Helper()
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if sharedInstance == nil && errShared == nil {
		ctx, cancel := context.WithTimeout(context.Background(), startPatience)
		defer cancel()
		sharedInstance, errShared = newInstance()
		if errShared == nil {
			errShared = sharedInstance.start(ctx)
		}
		if shape := wantedShape(); shape != "" && errShared == nil {
			errShared = sharedInstance.becomeFleet(ctx, shape)
		}
	}
	if errShared != nil {
		t.Fatalf("the shared instance does not run: %v\n%s", errShared, sharedInstance.tail(0))
	}
	return sharedInstance
}

func stopShared() error {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if sharedInstance == nil {
		return nil
	}
	defer sharedInstance.remove()
	if errShared != nil {
		return sharedInstance.fleet.stop() // it never ran, as a test has said
	}
	return sharedInstance.stop()
}
