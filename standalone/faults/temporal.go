package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/namespace"
	"github.com/everpost/everpost/standalone/internal/temporald"
)

// temporalCommand is the name under which this program runs a Temporal, which the shapes of several processes need.
const temporalCommand = "temporal"

// The signals that make accesses to Temporal's store fail, and end that.
const (
	storeFails = syscall.SIGUSR1
	storeWorks = syscall.SIGUSR2
)

// storeFault is whether accesses to the store fail: one in three does, as if the database were too busy.
type storeFault struct{ fails atomic.Bool }

func (f *storeFault) err() error {
	if f.fails.Load() && rand.IntN(3) == 0 {
		return serviceerror.NewUnavailable("the fault harness lets this fail")
	}
	return nil
}

// follow changes it by signals.
func (f *storeFault) follow(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, storeFails, storeWorks)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case s := <-signals:
				f.fails.Store(s == storeFails)
			case <-ctx.Done():
				return
			}
		}
	}()
}

// runTemporal runs Temporal until ctx is done.
func runTemporal(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("faults "+temporalCommand, flag.ContinueOnError)
	database := flags.String("database", "", "`URL` of the PostgreSQL to use")
	listen := flags.String("listen", "127.0.0.1:0", "address of the frontend")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var fault storeFault
	fault.follow(ctx)
	server, err := temporald.Start(ctx, temporald.Options{
		DatabaseURL: *database, Listen: *listen, Namespace: client.DefaultNamespace, SearchAttributes: namespace.WorkflowAttributes(), Shards: 4,
		PruneVisibilityIndexes: true, StoreFault: fault.err, Logger: slog.New(slog.NewTextHandler(stderr, nil)),
	})
	if err != nil {
		return fmt.Errorf("start Temporal: %w", err)
	}
	if _, err := fmt.Fprintln(stdout, "ready temporal="+server.Address()); err != nil {
		return fmt.Errorf("say that Temporal is ready: %w", err)
	}
	select {
	case <-ctx.Done():
	case <-server.Done():
		return fmt.Errorf("Temporal ended: %w", server.Err())
	}
	if err := server.Stop(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("stop Temporal: %w", err)
	}
	return nil
}
