package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"

	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/namespace"
	"github.com/everpost/everpost/standalone/internal/temporald"
)

// temporalCommand is the name under which this program runs a Temporal, which the shapes of several processes need.
const temporalCommand = "temporal"

// runTemporal runs Temporal until ctx is done.
func runTemporal(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("faults "+temporalCommand, flag.ContinueOnError)
	database := flags.String("database", "", "`URL` of the PostgreSQL to use")
	listen := flags.String("listen", "127.0.0.1:0", "address of the frontend")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server, err := temporald.Start(ctx, temporald.Options{
		DatabaseURL: *database, Listen: *listen, Namespace: client.DefaultNamespace, SearchAttributes: namespace.WorkflowAttributes(), Shards: 4,
		PruneVisibilityIndexes: true, Logger: slog.New(slog.NewTextHandler(stderr, nil)),
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
