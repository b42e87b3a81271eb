package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// profile repeats the work on the installation and takes profiles meanwhile, of CPU time
// and of allocations: <work>-<kind>-<round>.pprof. It runs after the measurement, because
// profiling costs time.
func (b *bench) profile(ctx context.Context, in *instance, w work) error {
	if b.profiles == "" {
		return nil
	}
	if err := os.MkdirAll(b.profiles, 0o755); err != nil { //nolint:gosec // nothing secret
		return fmt.Errorf("make a directory for profiles: %w", err)
	}
	b.sayf("profiles, %s", b.size.profile)
	group, ctx := errgroup.WithContext(ctx)
	var taking atomic.Int32
	for kind, path := range map[string]string{"cpu": "profile", "allocs": "allocs"} {
		taking.Add(1)
		group.Go(func() error {
			defer taking.Add(-1)
			name := filepath.Join(b.profiles, fmt.Sprintf("%s-%s-%d.pprof", w.name, kind, b.round))
			return in.saveProfile(ctx, fmt.Sprintf("/debug/pprof/%s?seconds=%.0f", path, b.size.profile.Seconds()), name)
		})
	}
	for taking.Load() > 0 { // complete each load, so that nothing arrives afterwards
		l, err := b.post(ctx, in, w)
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		b.receiver.close(l)
	}
	return group.Wait() //nolint:wrapcheck // says what it did
}

// saveProfile writes a response of the admin listener into a file.
func (in *instance) saveProfile(ctx context.Context, path, name string) error {
	response, err := in.Admin(ctx, path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	file, err := os.Create(name) //nolint:gosec // the user says where
	if err != nil {
		return fmt.Errorf("save a profile: %w", err)
	}
	_, err = io.Copy(file, response.Body)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("save a profile: %w", err)
	}
	return nil
}
