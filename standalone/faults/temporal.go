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
	"sync"
	"sync/atomic"
	"syscall"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"github.com/everpost/everpost/internal/namespace"
	"github.com/everpost/everpost/standalone/internal/temporald"
)

// temporalCommand is the name under which this program runs a Temporal, which the shapes of several processes need.
const temporalCommand = "temporal"

// The signals that make accesses to Temporal's store fail, and its namespace be gone, and end either.
const (
	storeFails    = syscall.SIGUSR1
	namespaceGone = syscall.SIGHUP
	allWorks      = syscall.SIGUSR2
)

// engineFault is what is wrong with Temporal.
type engineFault struct {
	storeFails atomic.Bool // one access to the store in three fails, as if the database were too busy

	mu   sync.Mutex
	gone context.Context //nolint:containedctx // done while the namespace is gone
	lose context.CancelFunc
}

func newEngineFault() *engineFault {
	f := &engineFault{}
	f.gone, f.lose = context.WithCancel(context.Background())
	return f
}

func (f *engineFault) ofStore() error {
	if f.storeFails.Load() && rand.IntN(3) == 0 {
		return serviceerror.NewUnavailable("the fault harness lets this fail")
	}
	return nil
}

// ofNamespace answers requests, and ends polls, as if Everpost's namespace did not exist.
func (f *engineFault) ofNamespace(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if request, ok := in.(interface{ GetNamespace() string }); !ok || request.GetNamespace() != client.DefaultNamespace {
		return handle(ctx, in)
	}
	gone := f.lost()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(gone, cancel)()
	var (
		out any
		err error
	)
	if gone.Err() == nil {
		out, err = handle(ctx, in)
	}
	if gone.Err() != nil {
		return nil, serviceerror.NewNamespaceNotFound(client.DefaultNamespace)
	}
	return out, err
}

func (f *engineFault) lost() context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone
}

// follow changes it by signals.
func (f *engineFault) follow(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, storeFails, namespaceGone, allWorks)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case s := <-signals:
				f.change(s)
			case <-ctx.Done():
				return
			}
		}
	}()
}

func (f *engineFault) change(s os.Signal) {
	f.storeFails.Store(s == storeFails)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case s == namespaceGone:
		f.lose()
	case s == allWorks && f.gone.Err() != nil:
		f.gone, f.lose = context.WithCancel(context.Background())
	}
}

// runTemporal runs Temporal until ctx is done.
func runTemporal(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("faults "+temporalCommand, flag.ContinueOnError)
	database := flags.String("database", "", "`URL` of the PostgreSQL to use")
	listen := flags.String("listen", "127.0.0.1:0", "address of the frontend")
	if err := flags.Parse(args); err != nil {
		return err
	}
	fault := newEngineFault()
	fault.follow(ctx)
	server, err := temporald.Start(ctx, temporald.Options{
		DatabaseURL: *database, Listen: *listen, Namespace: client.DefaultNamespace, SearchAttributes: namespace.WorkflowAttributes(), Shards: 4,
		PruneVisibilityIndexes: true, StoreFault: fault.ofStore, Interceptor: fault.ofNamespace,
		Logger: slog.New(slog.NewTextHandler(stderr, nil)),
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
